-- What follows stores a string, and sees its key through a `redis` of its own: GET returns the string without the
-- record of the holds, and what it writes takes effect when `write` does.
local server, value = redis, nil
local redis = {}
function redis.pcall(command, _, new)
  if command == 'GET' then return value end
  value = command == 'SET' and new
  return {}
end
redis.call = redis.pcall

-- load reads the key and returns its record.
local function load(key)
  local stored = server.pcall('GET', key)
  value = stored
  if type(stored) == 'table' then value = mistyped(stored.err) and 'foreign' end
  local main, text = string.match(value or '', '^([^|]*)(|.*)$')
  local record = parse(text)
  if text and record then value = main ~= '' and main end
  return record or parse()
end

-- write stores the key. It is kept for as long as it is needed once everything held is charged.
local function write(key, record, charge_at, needed)
  local text, main = format(record), needed() and value
  value = main
  if not (text or main) then server.call('DEL', key) return end
  for _, held in ipairs(record.list) do charge_at(held[1], held[2]) end
  local last = needed() or now
  value = main
  return server.pcall('SET', key, (main or '') .. (text or ''), 'PX', math.ceil(math.max(1, last - now) / 1000) + grace).err
end

local function clear() value = false end
