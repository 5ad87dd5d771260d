
-- span writes the cost of some units, the debt that they add, to ARGV[n] and the next. From 2^53 on it is not exact,
-- and never fits.
local function span(c, n, units)
  local count, period, q = tonumber(string.match(ARGV[c], ' (%d+)')), ARGV[c + 4], ARGV[c + 3]
  local part = (period % count) / (count / q) -- of a unit, in parts of 1/q beyond its whole microseconds
  units = math.min(units, 2 ^ 31)
  local parts = part * math.floor(units / 2 ^ 16) -- the product itself may be beyond 2^53
  local rest = parts % q * 2 ^ 16 + part * (units % 2 ^ 16)
  local w = units * math.floor(period / count) + math.floor(parts / q) * 2 ^ 16 + math.floor(rest / q)
  ARGV[n], ARGV[n + 1] = math.min(w, 2 ^ 53), rest % q
end

-- force charges units whether they fit or not, as far as the instant at which the debt ends can be stored.
local function force(key, c, n, units)
  span(c, n, units)
  local _, t, a, b, _, x, y = evaluate(key, c, n)
  if now + x >= 2 ^ 53 then x, y = 2 ^ 53 - 1 - now, 0 end
  return charge(key, c, n, t, a, b, 0, x, y)
end

-- needed returns the instant until which what is charged is needed, or nil if it is not. A debt that was stored at
-- another rate ends when it says, and not at this limit's rate.
local function needed(key, c, _, t, w, f)
  if not t then w, f = debt(key, c) end
  if w + f == 0 then return end
  local value, form = redis.call('GET', key), ARGV[c]
  if string.sub(value, 1, #form) == form then return now + w + 1 end
  return tonumber(string.match(value, '^B1 %S+ (%d+)')) + 1
end

-- tail returns for how much longer the key is needed once units were charged.
local function tail(c, n, units)
  span(c, n, units)
  return ARGV[n] + 1
end
