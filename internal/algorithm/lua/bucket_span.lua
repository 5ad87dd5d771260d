
-- length returns the debt that some units add. From 2^53 on it is not exact, and never fits.
local function length(c, units)
  local count, period, q = tonumber(string.match(ARGV[c], ' (%d+)')), ARGV[c + 4], ARGV[c + 3]
  local part = (period % count) / (count / q) -- of a unit, in parts of 1/q beyond its whole microseconds
  units = math.min(units, 2 ^ 38)
  local parts = part * math.floor(units / 2 ^ 16) -- the product itself may be beyond 2^53
  local rest = parts % q * 2 ^ 16 + part * (units % 2 ^ 16)
  local w = units * math.floor(period / count) + math.floor(parts / q) * 2 ^ 16 + math.floor(rest / q)
  return math.min(w, 2 ^ 53), rest % q
end
