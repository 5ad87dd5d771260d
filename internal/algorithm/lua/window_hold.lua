
local function span(_, n, units) ARGV[n] = units end

-- force charges units whether they fit or not, up to 2^30 in the window: more than any limit.
local function force(key, c, n, units)
  ARGV[n] = 0
  local _, t, used, b, d, u, v = evaluate(key, c, n)
  ARGV[n] = math.min(units, 2 ^ 30 - used)
  if ARGV[n] > 0 then return charge(key, c, n, t, used, b, d, u, v) end
end
