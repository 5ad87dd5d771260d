-- Decides a Limiter of several limits, for each key on its own: all admit, or none is charged. All is
-- read before the first write, because Redis does not undo a script that fails half way.
-- KEYS     the limits' states, all of one decision and then those of the next
-- ARGV     each algorithm's arguments; then '1' to charge what is admitted or '0' to look, and each
--          limit's cost: once for all decisions, or once for each
-- Answers  {admits, t, x, y, z} for each limit of each decision, in one list; see decide.lua.

local reply, found, costs, several = {}, {}, first, #algorithms
for i = 1, several do found[i] = { 0, 0, 0, 0, 0, 0 } end
local step = #ARGV > costs + several and 1 + several or 0
for base = 0, #KEYS - 1, several do
  charging = ARGV[costs] == '1'
  local all, err = charging, nil
  for i = 1, several do
    local algorithm = algorithms[i]
    local admits, t, x, y, z, u, v = algorithm.read(KEYS[base + i], now, algorithm.first, costs + i)
    all = all and admits
    local f = found[i]
    f[1], f[2], f[3], f[4], f[5], f[6] = t, x, y, z, u, v
    local at = 5 * (base + i)
    reply[at - 4], reply[at - 3], reply[at - 2], reply[at - 1], reply[at] = admits and 1 or 0, t, x, y + -y % 1, z
  end
  for i = 1, all and several or 0 do
    local algorithm = algorithms[i]
    err = algorithm.charge(KEYS[base + i], algorithm.first, costs + i, unpack(found[i], 1, 6))
    if err then break end
  end
  if err and #KEYS == several then return { err = err } end
  if err then reply[5 * base + 1] = 2 end
  costs = costs + step
end
return reply
