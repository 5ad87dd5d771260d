-- Decides a Limiter of several limits: all admit, or none is charged. Everything is
-- read before the first write, because Redis does not undo a script that fails half way.
-- KEYS     each limit's state
-- ARGV[1]  '1' to charge what is admitted, '0' to look
-- ARGV[2]  and on: each algorithm's arguments
-- Answers  {admits (1 or 0), t, x, y, z} for each limit, in one list.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local all, reply, states, argument = true, {}, {}, 2
for i, algorithm in ipairs(algorithms) do
  local admits, t, x, y, z = algorithm.read(KEYS[i], now, argument)
  all = all and admits
  states[i] = { argument, t, x, y, z }
  for _, number in ipairs({ admits and 1 or 0, t, x, math.ceil(y), z or 0 }) do
    reply[#reply + 1] = number
  end
  argument = argument + algorithm.args
end
if all and ARGV[1] == '1' then
  for i, algorithm in ipairs(algorithms) do
    algorithm.charge(KEYS[i], unpack(states[i]))
  end
end
return reply
