
local function span(_, n, units) ARGV[n] = string.format('%.0f', units) end

-- force charges units whether they fit or not, as many as the limit at most.
local function force(key, c, n, units)
  local limit = ARGV[c]
  span(c, n, math.min(units, limit))
  ARGV[c] = 2 ^ 53
  local _, t, used, number, newest, top, foreign = evaluate(key, c, n)
  ARGV[c] = limit
  return charge(key, c, n, t, used, number, newest, top, foreign)
end

-- needed returns the instant until which the key is needed.
local function needed(key, c)
  local newest = redis.call('ZRANGE', key, -1 - records, -1 - records, 'WITHSCORES')[2]
  return (newest or now) + ARGV[c + 1]
end
