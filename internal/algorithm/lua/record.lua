-- The record of the holds of a limit: '|H1 id charged held first', ' expiry:units' for each hold but
-- the first, and of a bucket '@count/period', the fastest rate at which they were reserved. `id`
-- tells these holds from those of another time, after the state was lost; `charged` is the latest
-- expiry that was charged; `held` is the sum of all units, and `first` the first expiry, or 0. All units that expire at one instant are together, in order of expiry. There
-- are at most 64 of them, 128 numbers: about eight for each duration of holds in use. A text that
-- is longer than they can be is foreign, and so is one with more units than any limit has.
-- Decisions read the head alone, so it decides: where what follows contradicts it, all units expire
-- at `first`.
local head = '|H1 ' .. whole .. ' ' .. whole .. ' ' .. whole .. ' ' .. whole

-- parse returns the head of a record, the text that follows and the rate, '' if there is none; or
-- nothing if the record is foreign.
function parse(text)
  if #text > 32 * 64 + 100 then return end
  local id, charged, held, first, rest, rate = string.match(text, '^|H1 (%d+) (%d+) (%d+) (%d+)([ :%d]*)@?([/%d]*)$')
  if rate and rate ~= '' and not (#rate < 30 and string.find(rate, '^[1-9]%d*/[1-9]%d*$')) then return end
  id, charged, held, first = tonumber(id or ''), tonumber(charged or ''), tonumber(held or ''), tonumber(first or '')
  if not (id and charged and held and first) then return end -- miniredis: nil for a number of 20 digits
  if id >= 2 ^ 53 or charged >= latest or held > 2 ^ 30 or first > latest then return end
  if held > 0 and first > charged or held == 0 and first == 0 and rest == '' then return id, charged, held, first, rest, rate end
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
function fold(id, charged, held, list, rate)
  if held == 0 and charged == 0 then return '' end
  local text = string.format(head, id, charged, held, list[1] or 0)
  for i = 3, #list, 2 do text = text .. string.format(' ' .. whole .. ':' .. whole, list[i], list[i + 1]) end
  if held > 0 and rate ~= '' then text = text .. '@' .. rate end
  return text
end

-- speed returns the units per microsecond of a rate, 'count/period'.
function speed(rate)
  local count, per = string.match(rate, '^(%d+)/(%d+)$')
  return count / per
end

-- fastest returns the faster of two rates. Limits that are no buckets have ''.
function fastest(rate, other)
  if rate == other or speed(rate) > speed(other) then return rate end
  return other
end
