-- Decides a Limiter of one limit.
-- KEYS[1]  the limit's state
-- ARGV[1]  '1' to charge what is admitted, '0' to look
-- ARGV[2]  and on: the algorithm's arguments
-- Answers  {admits (1 or 0), t, x, y, z}: what the algorithm read before it charged.

local time = redis.call('TIME')
local admits, t, x, y, z = algorithm.read(KEYS[1], time[1] * 1000000 + time[2], 2)
if admits and ARGV[1] == '1' then
  algorithm.charge(KEYS[1], 2, t, x, y, z)
end
return { admits and 1 or 0, t, x, math.ceil(y), z or 0 }
