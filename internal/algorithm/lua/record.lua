-- The record of the holds of a limit: '|H1 id charged held first', and ' expiry:units' for each
-- hold but the first. `id` tells these holds from those of another time, after the state was lost;
-- `charged` is the latest expiry that was charged; `held` is the sum of all units, and `first` the
-- first expiry, or 0. All units that expire at one instant are together, in order of expiry. There
-- are at most 64 of them, 128 numbers: about eight for each duration of holds in use. A text that
-- is longer than they can be is foreign, and so is one with more units than any limit has.
-- Decisions read the head alone, so it decides: where what follows contradicts it, all units expire
-- at `first`.
local head = '|H1 ' .. whole .. ' ' .. whole .. ' ' .. whole .. ' ' .. whole

-- parse returns the head of a record and the text that follows, or nothing if it is foreign.
function parse(text)
  if #text > 32 * 64 + 70 then return end
  local id, charged, held, first, rest = string.match(text, '^|H1 (%d+) (%d+) (%d+) (%d+)([ :%d]*)$')
  id, charged, held, first = tonumber(id or ''), tonumber(charged or ''), tonumber(held or ''), tonumber(first or '')
  if not (id and charged and held and first) then return end -- miniredis: nil for a number of 20 digits
  if id >= 2 ^ 53 or charged >= latest or held > 2 ^ 30 or first > latest then return end
  if held > 0 and first > charged or held == 0 and first == 0 and rest == '' then return id, charged, held, first, rest end
end

-- unfold returns the holds of a record in one list: expiry, units, expiry, units ...
function unfold(held, first, rest)
  local list = held > 0 and { first, held } or {}
  if rest == '' then return list end
  for expiry, units in string.gmatch(rest, ' (%d+):(%d+)') do
    expiry, units = tonumber(expiry) or 2 ^ 53, tonumber(units) or 0
    list[2] = list[2] - units
    if expiry <= list[#list - 1] or expiry > latest or units < 1 or list[2] < 1 or #list >= 128 then return { first, held } end
    list[#list + 1] = expiry
    list[#list + 1] = units
  end
  return list
end

-- fold returns the text of a record, '' if there is nothing to know.
function fold(id, charged, held, list)
  if held == 0 and charged == 0 then return '' end
  local text = string.format(head, id, charged, held, list[1] or 0)
  for i = 3, #list, 2 do text = text .. string.format(' ' .. whole .. ':' .. whole, list[i], list[i + 1]) end
  return text
end
