local function cost(units) return units end

-- force charges units whether they fit or not, up to 2^30 in the window: more than any limit.
local function force(key, units)
  local _, t, used, b, c, u, v = evaluate(key, 0)
  units = math.min(units, 2 ^ 30 - used)
  if units > 0 then return charge(key, units, t, used, b, c, u, v) end
end
