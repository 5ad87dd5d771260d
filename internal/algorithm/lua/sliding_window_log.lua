-- sliding_window_log.
-- Value: a sorted set with an entry for each unit admitted. Its score is the instant in microseconds. Its
-- member is that instant, or the number after the last member if that is larger: so the members of one
-- instant differ, and are in the order in which they were added.
-- Constants: limit, period. Cost: the units.
-- Observes: the units in the window; the first member to add if it admits, and else the instant at
-- which it will; the instant of the newest unit.

local function evaluate(key, c, n)
  local limit, period, cost = ARGV[c], ARGV[c + 1], tonumber(ARGV[n])
  local last = redis.pcall('ZRANGE', key, -1, -1, 'WITHSCORES')
  local foreign = last.err and mistyped(last.err)
  local member, newest = tonumber(last[1]), tonumber(last[2])
  if not (member and newest and newest >= 0 and member >= newest and member < 2 ^ 53) then
    foreign = foreign or last[1]
    return cost <= limit, now, 0, now, 0, foreign, nil, foreign
  end
  local t = newest > now and newest or now
  local used = redis.call('ZCOUNT', key, t - period + 1, '+inf')
  if used + cost <= limit then return true, t, used, t > member and t or member + 1, newest end
  if cost > limit then return false, t, used, 0, newest end
  -- It admits when used + cost - limit units have left. The last of them is entry used + cost - limit of the
  -- `used` newest ones, which are the last of the set: this is its rank from the end.
  local rank = cost - limit - 1
  local last_to_leave = redis.call('ZRANGE', key, rank, rank, 'WITHSCORES')
  return false, t, used, last_to_leave[2] + period, newest
end

-- each calls a command for `cost` members from `first` on, with the score before each member if there is one.
-- It makes several calls, because the arguments of one must fit on Lua's stack, and returns the error of one
-- that fails.
local function each(command, key, first, cost, score)
  for from = 0, cost - 1, 500 do
    local entries = {}
    for i = from, math.min(from + 500, cost) - 1 do
      if score then entries[#entries + 1] = score end
      entries[#entries + 1] = first + i
    end
    local done = redis.pcall(command, key, unpack(entries))
    if type(done) == 'table' then return done.err end
  end
end

local function charge(key, c, n, t, used, first, newest, foreign)
  local cost, period, err = tonumber(ARGV[n]), ARGV[c + 1], nil
  if foreign then redis.pcall('DEL', key) end
  if newest > 0 then redis.call('ZREMRANGEBYSCORE', key, '-inf', t - period) end
  if cost == 1 then
    local done = redis.pcall('ZADD', key, t, first)
    err = type(done) == 'table' and done.err
  else
    err = each('ZADD', key, first, cost, t)
  end
  if err then return err end
  redis.call('PEXPIREAT', key, math.ceil((t + period) / 1000))
end
