-- load returns the string stored under key, if there is one, and whether a value of another type is.
local function load(key)
  local value = redis.pcall('GET', key)
  if not (value and value.err) then return value end
  if not string.find(value.err, 'WRONGTYPE', 1, true) then error(value.err) end
  return nil, true
end
