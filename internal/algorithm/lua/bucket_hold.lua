
-- span writes the cost of some units to ARGV[n] and the next.
local function span(c, n, units) ARGV[n], ARGV[n + 1] = length(c, units) end

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
  if not t then w, f = read(key, c) end
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
