-- Gives back what a decision charged, as far as it still counts.
-- KEYS     each limit's state
-- ARGV     each algorithm's arguments; then '1', each limit's cost that was charged, and for each the
--          mark by which the algorithm finds the charge
-- Answers  {1}, or the error of a limit that could not give back

charging = true
for i, algorithm in ipairs(algorithms) do
  local cost = first + i
  local err = algorithm.refund(KEYS[i], now, algorithm.first, cost, tonumber(ARGV[cost + #algorithms]))
  if err then return { err = err } end
end
return { 1 }
