-- sliding_window_log.
-- Value: a sorted set with an entry for each charge. Its score is the instant in microseconds. Its member is a
-- number: that instant, or the number after the last charge's if that is larger. So the entries of one instant
-- differ, and are in the order in which they were added. The entry counts one unit.
-- The member of a charge of several units is 'number:units', as is that of every charge after it while it is in
-- the set. Its units after the first have entries of their own, one for each power of two w in their binary
-- form: the member is 'number*w', the score -(instant + 2^50) * w^3, so that each w has a range of scores that
-- no other shares. Redis counts the units since any instant with one command for each w, and a refund only
-- removes the entries of its charge, wherever they are.
-- While units are held, the last member is the record of the holds (hold.lua), with the score +inf: `records` is
-- then 1, and else 0.
-- Constants: limit, period. Cost: the units.
-- Observes: the units in the window; the number of the charge if it admits, and else the instant at which it
-- will; the instant of the newest charge.

-- count returns the units charged from an instant on. `top` is the largest w in the set, or 0.
local function count(key, from, top)
  local units, w = redis.call('ZCOUNT', key, from, 2 ^ 53), 1
  while w <= top do
    local scale = w * w * w
    spent = spent + 1
    units = units + w * redis.call('ZCOUNT', key, -2 ^ 53 * scale, -(math.max(from, 0) + 2 ^ 50) * scale)
    w = w * 2
  end
  return units
end

local function evaluate(key, c, n)
  local limit, period, cost = ARGV[c], ARGV[c + 1], tonumber(ARGV[n])
  local last = redis.pcall('ZRANGE', key, -1 - records, -1 - records, 'WITHSCORES')
  local foreign = last.err and mistyped(last.err)
  local number, newest, top = tonumber(last[1]), tonumber(last[2]), 0
  if newest and not number then
    number = tonumber(string.match(last[1], '^(%d+):%d+$') or '')
    local lowest = tonumber(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]) or -2 ^ 200 -- miniredis: nil for -9e+18
    spent = spent + 8
    if lowest < 0 then top = 1 end
    while top > 0 and top < 2 ^ 16 and lowest < -2 ^ 53 * top * top * top do top = top * 2 end
  elseif newest and string.find(last[1], '%D') then
    number = nil
  end
  if not (number and newest and newest >= 0 and newest <= latest and newest % 1 == 0 and number >= newest and number <= latest + ahead) then
    foreign = foreign or last[1]
    return cost <= limit, now, 0, now, 0, 0, foreign, foreign
  end
  local t = newest > now and newest or now
  local from = t - period + 1
  local used = count(key, from, top)
  if number == latest + ahead then return false, t, used, t + 1, newest end -- the next number would be foreign
  if used + cost <= limit then return true, t, used, t > number and t or number + 1, newest, top end
  if cost > limit then return false, t, used, 0, newest end
  local stay = limit - cost -- units that may stay: it admits when all but the newest `stay` have left
  if top == 0 then return false, t, used, redis.call('ZRANGE', key, -stay - 1 - records, -stay - 1 - records, 'WITHSCORES')[2] + period, newest end
  -- It admits when the charge at rank `high` has left, and does not yet when that at `low` has.
  local low, high, step, last_to_leave = -redis.call('ZCOUNT', key, from, 2 ^ 53) - 1 - records, -1 - records, 1, newest
  while high - low > 1 do
    spent = spent + 4
    local rank = math.min(low + step, math.floor((low + high) / 2))
    local at = redis.call('ZRANGE', key, rank, rank, 'WITHSCORES')[2] + 0
    if count(key, at + 1, top) <= stay then
      high, last_to_leave, step = rank, at, 2 ^ 53
    else
      low, step = rank, step * 2
    end
  end
  return false, t, used, last_to_leave + period, newest
end

-- entries returns the members of a charge, with the score before each if there is an instant.
local function entries(number, units, at)
  local list, rest, w = {}, units - 1, 1
  list[1] = at
  list[#list + 1] = string.format('%.0f:%.0f', number, units)
  while rest > 0 and w <= 2 ^ 16 do
    if rest % 2 == 1 then
      if at then list[#list + 1] = -(at + 2 ^ 50) * w * w * w end
      list[#list + 1] = string.format('%.0f*%.0f', number, w)
      rest = rest - 1
    end
    rest, w = rest / 2, w * 2
  end
  return list
end

-- charge begins with a write that Redis refuses while it is out of memory: after any other write it would refuse
-- none. It removes what has left the window in parts, so that it takes a bounded time.
local function charge(key, c, n, t, used, number, newest, top, foreign)
  local period, added, done = ARGV[c + 1], 1, nil
  if foreign then
    done = redis.pcall('SET', key, '', 'PX', 1000)
    if done.err then return done.err end
    redis.call('DEL', key)
  end
  if top == 0 and ARGV[n] == '1' then
    done = redis.pcall('ZADD', key, t, number)
  else
    local list = entries(number, tonumber(ARGV[n]), t)
    added = #list / 2
    spent = spent + added
    done = redis.pcall('ZADD', key, unpack(list))
  end
  if type(done) == 'table' then return done.err end
  if newest > 0 and top == 0 and added == 1 then
    local expired = redis.call('ZCARD', key) - used - added - records
    if expired > 0 then
      if expired > 1000 then expired = 1000 end
      spent = spent + expired / 4
      redis.call('ZREMRANGEBYRANK', key, added - 1, added + expired - 2)
    end
  elseif newest > 0 then
    for _, member in ipairs(redis.call('ZRANGEBYSCORE', key, 0, t - period, 'LIMIT', 0, 100)) do
      local first, units = string.match(string.sub(member, 1, 40), '^(%d+):?(%d*)$')
      local gone = entries(tonumber(first or 0), tonumber(units or '') or 1)
      spent = spent + 2 + #gone
      redis.call('ZREM', key, member, unpack(gone))
    end
  end
  if records == 0 then redis.call('PEXPIREAT', key, math.ceil((t + period) / 1000)) end -- else the record is needed for longer
end
