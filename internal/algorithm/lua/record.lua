-- The record of the holds of a limit: '|id charged expiry:units ...'. `id` tells these holds from those of
-- another time, after the state was lost; `charged` is the latest expiry that was charged; then the holds by
-- expiry, all units that expire at one instant together. There are at most `most_holds` of them: about eight for each
-- duration of holds in use. A longer record is foreign, and so is one with more units than any limit has.
local most_holds = 64

local spent = 0

-- parse returns the record in `text`, an empty one for nil, or nil if it is foreign.
local function parse(text)
  local record = { id = 0, charged = 0, list = {}, held = 0, text = text }
  if not text then return record end
  if #text > 32 * most_holds + 40 then return nil end
  local id, charged, rest = string.match(text, '^|(%d+) (%d+)([ :%d]*)$')
  if not id then return nil end
  record.id, record.charged = tonumber(id) or 2 ^ 53, tonumber(charged) or 2 ^ 53 -- miniredis: nil for a number of 20 digits
  if record.id >= 2 ^ 53 or record.charged >= latest then return nil end
  local last = record.charged
  for expiry, units in string.gmatch(rest, ' (%d+):(%d+)') do
    expiry, units = tonumber(expiry) or 2 ^ 53, tonumber(units) or 0
    record.list[#record.list + 1] = { expiry, units }
    record.held = record.held + units
    if expiry <= last or expiry > latest or units < 1 or record.held > 2 ^ 30 or #record.list > most_holds then return nil end
    last = expiry
  end
  return record
end

-- format returns the text of a record, or nil if there is nothing to know.
local function format(record)
  if #record.list == 0 and record.charged == 0 then return nil end
  local parts = { string.format('|%.0f %.0f', record.id, record.charged) }
  for i, hold in ipairs(record.list) do parts[i + 1] = string.format('%.0f:%.0f', hold[1], hold[2]) end
  return table.concat(parts, ' ')
end

-- hold adds units to a record, until `expiry`, or where the record is full until another. It returns which.
local function hold(record, expiry, units)
  local list, i = record.list, 1
  while list[i] and list[i][1] < expiry do i = i + 1 end
  if #list >= most_holds then
    i = math.min(i, #list)
  elseif not list[i] or list[i][1] > expiry then
    table.insert(list, i, { expiry, 0 })
  end
  list[i][2] = list[i][2] + units
  record.held = record.held + units
  return list[i][1]
end

-- take takes units off the hold until `expiry` of the record `id`. It returns nothing if there is none.
local function take(record, id, expiry, units)
  if record.id ~= id then return end
  for i, hold in ipairs(record.list) do
    if hold[1] == expiry and hold[2] >= units then
      hold[2] = hold[2] - units
      record.held = record.held - units
      if hold[2] == 0 then table.remove(record.list, i) end
      return true
    end
  end
end

-- full is set where a call of several writes what needs no memory, and Redis has none: it then refuses no write after
-- that one, so that no call may follow.
local full = false

-- refuses returns whether the reply to a write is that Redis is out of memory.
local function refuses(reply) return type(reply) == 'table' and reply.err and string.find(reply.err, 'OOM', 1, true) ~= nil end

-- work is about how many microseconds a call takes for each limit, and to charge what has expired.
local work = 10
