
-- refund removes the entries of the charge of a number, if it is in the set with as many units: after a reset another may
-- have the number.
local function refund(key, _, n, number)
  local units = tonumber(ARGV[n])
  local list = entries(number, units)
  frees(key)
  local done = redis.pcall('ZREM', key, list[1], units == 1 and number or list[1])
  if type(done) == 'table' then
    mistyped(done.err)
  elseif done > 0 and list[2] then
    redis.call('ZREM', key, unpack(list, 2))
  end
end
