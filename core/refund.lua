-- Gives back what a decision charged, as far as it still counts.
-- KEYS     each limit's state
-- ARGV     each algorithm's arguments; then '1', each limit's cost that was charged, and for each the
--          mark by which the algorithm finds the charge
-- Answers  {1}

charging = true
for i, algorithm in ipairs(algorithms) do
  local cost = first + i
  algorithm.refund(KEYS[i], now, algorithm.first, cost, tonumber(ARGV[cost + #algorithms]))
end
return { 1 }
