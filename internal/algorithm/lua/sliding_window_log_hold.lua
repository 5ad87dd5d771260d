
local function span(_, n, units) ARGV[n] = string.format('%.0f', units) end

-- force charges units whether they fit or not, as many as the largest limit of a log at most: this limit may be a smaller
-- one than that by which they were held.
local function force(key, c, n, units)
  local limit = ARGV[c]
  span(c, n, math.min(units, 100000))
  ARGV[c] = 2 ^ 53
  local _, t, used, number, newest, top, foreign = evaluate(key, c, n)
  ARGV[c] = limit
  return charge(key, c, n, t, used, number, newest, top, foreign)
end

-- needed returns the instant until which what is charged is needed: t is that of a decision, from which on it is.
local function needed(key, c, _, t)
  return (t or math.min(redis.pcall('ZRANGE', key, -1 - records, -1 - records, 'WITHSCORES')[2] or now, latest)) + ARGV[c + 1]
end

-- tail returns for how much longer the key is needed once units were charged.
local function tail(c) return ARGV[c + 1] end
