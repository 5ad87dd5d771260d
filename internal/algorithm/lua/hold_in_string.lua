-- What follows stores a string, and sees its key through a `redis` of its own: GET returns the string without the
-- record of the holds, and what it writes takes effect when `write` does.
local server, value, expires = redis, nil, nil -- `expires` is until when what is charged is needed, where that was written
local redis = {}
function redis.pcall(command, _, new, _, px)
  if command == 'GET' then return value end
  value, expires = false, nil
  if command == 'SET' then value, expires = new, now + (px - grace) * 1000 end
  return {}
end
redis.call = redis.pcall

-- load reads the key and returns its record.
local function load(key)
  local stored = server.pcall('GET', key)
  value, expires = stored, nil
  if type(stored) == 'table' then value = mistyped(stored.err) and 'foreign' end
  local at = value and string.find(value, '|', 1, true)
  local record = at and parse(string.sub(value, at))
  if record then value = at > 1 and string.sub(value, 1, at - 1) end
  return record or parse()
end

-- write stores what is charged and the record, as long as one of them is needed. The key is kept until `last`. Beside a record
-- a window that has ended stays, too: if the clock steps back, it is open again.
local function write(key, record, needed, last)
  local text = format(record)
  local main = (needed or text) and value or nil
  value = main
  if text or main then
    return server.pcall('SET', key, (main or '') .. (text or ''), 'PX', math.ceil(math.max(1, last - now) / 1000) + grace).err
  end
  if several then full = full or refuses(server.pcall('SET', key, '', 'NX')) end
  server.call('DEL', key)
end

-- replace drops a foreign value.
local function replace() value = false end

local function clear() value, expires = false, nil end
