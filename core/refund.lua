-- Gives back what a decision charged, as far as it still counts.
-- KEYS     each limit's state
-- ARGV[1]  '1'
-- ARGV[2]  and on: each algorithm's arguments, for the cost that was charged, and after them the mark
--          by which it finds the charge
-- Answers  {1}

local time = redis.call('TIME')
local argument = 2
for i, algorithm in ipairs(algorithms) do
  local mark = argument + algorithm.args
  algorithm.refund(KEYS[i], time[1] * 1000000 + time[2], argument, tonumber(ARGV[mark]))
  argument = mark + 1
end
return { 1 }
