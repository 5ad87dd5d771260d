-- What follows stores a string: what is charged, and behind it the record of the holds. It is written when `write` is called.
local value, expires -- `expires` is until when what is charged is needed, where that was written
local id, charged, held, first, rest -- the record
local text, list -- as it is stored, and its holds where they were looked at

-- load reads the key.
local function load(key)
  value = redis.pcall('GET', key)
  if value and value.err then value = mistyped(value.err) and 'foreign' end
  local at = value and string.find(value, '|', 1, true)
  if at then
    text = string.sub(value, at)
    id, charged, held, first, rest = parse(text)
  end
  if not (at and id) then
    id, charged, held, first, rest, text = 0, 0, 0, 0, '', ''
  else
    value = at > 1 and string.sub(value, 1, at - 1)
  end
end

-- write stores what is charged and the new text of the record, as long as one of them is needed. The key is kept until
-- `last`. Beside a record a window that has ended stays, too: if the clock steps back, it is open again.
local function write(key, new, needed, last)
  if not needed and new == '' then value = nil end
  text = new
  local stored = (value or '') .. text
  if stored ~= '' then
    return redis.pcall('SET', key, stored, 'PX', string.format(whole, math.max(0, last - now) / 1000 + grace + 1)).err
  end
  frees('SET', key, '', 'NX')
  redis.call('DEL', key)
end

-- replace drops a foreign value.
local function replace() value = nil end

local function clear() value, expires = nil, nil end
