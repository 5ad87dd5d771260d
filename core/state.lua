-- What every algorithm shares: reading a key that may hold anything.

-- discard removes what is not ours, where the call may write: nothing would ever give it a TTL.
local function discard(key)
  if ARGV[1] ~= '0' then redis.call('DEL', key) end
end

-- fetch runs a reading command. A value of another type counts as none.
local function fetch(key, command, ...)
  local value = redis.pcall(command, key, ...)
  if type(value) == 'table' and value.err then
    if not string.find(value.err, 'WRONGTYPE', 1, true) then error(value.err) end
    discard(key)
    return false
  end
  return value
end

local function number(digits)
  if not digits or digits == '' then return 0 end
  return tonumber(digits) or math.huge
end

-- parse matches a stored string and returns its numbers, 0 for what is empty. A form that is not
-- understood counts as nothing stored.
local function parse(key, pattern)
  local value = fetch(key, 'GET')
  if not value then return nil end
  local a, b, c, d, e = string.match(value, pattern)
  a, b, c, d, e = number(a), number(b), number(c), number(d), number(e)
  if a + b + c + d + e < 2 ^ 53 and a > 0 then return a, b, c, d, e end
  discard(key)
end

-- store writes a string that expires at an instant in microseconds.
local function store(key, value, expires)
  redis.call('SET', key, value, 'PXAT', math.ceil(expires / 1000))
end
