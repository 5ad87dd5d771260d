-- What follows stores a string: what is charged, and behind it the record of the holds. It is written when `write` is called.
local value, expires = nil, nil -- `expires` is until when what is charged is needed, where that was written

-- load reads the key and returns its record.
local function load(key)
  local stored = redis.pcall('GET', key)
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
    return redis.pcall('SET', key, (main or '') .. (text or ''), 'PX', math.ceil(math.max(1, last - now) / 1000) + grace).err
  end
  if several then full = full or refuses(redis.pcall('SET', key, '', 'NX')) end
  redis.call('DEL', key)
end

-- replace drops a foreign value.
local function replace() value = false end

local function clear() value, expires = false, nil end
