-- Refunds what a decision charged, as far as it still counts.
-- KEYS     the key of each limit
-- ARGV     each limit's constants; from `first` on '1', each limit's cost that was charged, and for each
--          the id by which the algorithm finds the charge
-- Replies  {1}, or the error of a limit that could not be refunded.
--
-- The algorithm's refund file has one function, refund(key, constants, cost, id), which returns nothing or the
-- error of Redis. It can use all that the algorithm's file has.

for i, limit in ipairs(limits) do
  local err = limit.refund(KEYS[i], limit.constants, first + limit.cost, tonumber(ARGV[first + width + i - 1]))
  if err then return { err = err } end
end
return { 1 }
