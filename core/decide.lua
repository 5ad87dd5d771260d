-- Decides a Limiter of one limit, for each key on its own.
-- KEYS     the limit's state, one for each decision
-- ARGV     the algorithm's arguments; then '1' to charge what is admitted or '0' to look, and the cost:
--          once for all decisions, or once for each
-- Answers  {admits, t, x, y, z} for each decision, in one list: 1 or 0, and what the algorithm read
--          before it charged. Of several decisions one that fails answers 2, and charges nothing.

local reply, n = { 0, 0, 0, 0, 0 }, first + 1
local step = #ARGV > n and 2 or 0
for i = 1, #KEYS do
  charging = ARGV[n - 1] == '1'
  local admits, t, x, y, z, u, v = read(KEYS[i], now, 1, n)
  local err = admits and charging and charge(KEYS[i], 1, n, t, x, y, z, u, v)
  if err and #KEYS == 1 then return { err = err } end
  local at = 5 * i
  reply[at - 4], reply[at - 3], reply[at - 2] = err and 2 or admits and 1 or 0, t, x
  reply[at - 1], reply[at] = y + -y % 1, z
  n = n + step
end
return reply
