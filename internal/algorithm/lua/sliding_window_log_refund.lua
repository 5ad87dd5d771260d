
-- refund removes the entries of the charge of a number, as far as they are in the set.
local function refund(key, _, n, number)
  local units = tonumber(ARGV[n])
  local list = entries(number, units)
  if units == 1 then list[2] = number end
  frees(key)
  local done = redis.pcall('ZREM', key, unpack(list))
  if type(done) == 'table' then mistyped(done.err) end
end
