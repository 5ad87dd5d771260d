-- An algorithm that stores a string sees its key through a `redis` of its own: GET returns the string without the
-- record of the holds, and SET and DEL take effect when `store` writes both.
local redis, value, expires = redis, nil, nil
local function run(command, _, new, _, px)
  if command == 'GET' then return value end
  value, expires = false, 0
  if command == 'SET' then value, expires = new, now + px * 1000 end
  return {}
end
local own = { call = run, pcall = run }

-- load reads the key. It returns the record.
local function load(key)
  local stored = redis.pcall('GET', key)
  value, expires = stored, nil
  if type(stored) == 'table' then value = '' .. tostring(mistyped(stored.err)) end
  if not value then return parse() end
  local main, text = string.match(value, '^([^|]*)(|.*)$')
  local record = parse(text)
  if text and record then value = main ~= '' and main end
  return record or parse()
end

-- store writes the key. It is kept for as long as it is needed once all holds are charged.
local function store(key, limit, record)
  local text, main = format(record), value
  if not (main or text) then return redis.call('DEL', key) and nil end
  local last = expires or now
  if #record.list > 0 or not expires then
    for _, hold in ipairs(record.list) do limit.force_at(key, hold[1], hold[2]) end
    last = expires or last
  end
  return redis.pcall('SET', key, (main or '') .. (text or ''), 'PX', math.max(1, math.ceil((last - started) / 1000)) + grace).err
end
