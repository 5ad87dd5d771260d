-- sliding_window_log.
-- Value: a sorted set with an entry for each charge. Its score is the instant in microseconds. Its
-- member is a number: that instant, or the number after the last charge's if that is larger. So the
-- entries of one instant differ, and are in the order in which they were added. The entry counts
-- one unit. The member of a charge of several units is 'number:units'; while such a charge is in
-- the set, later charges have this form, too. The units of such a charge after the first have
-- entries of their own, its powers: one for each power of two w in their binary form. The member is
-- 'number*w', the score -(instant + 2^50) * w^3, so that each w has a range of scores that no other
-- shares. Redis counts the units since any instant with one command for each w, and a refund only
-- removes the entries of its charge, wherever they are. While a record is kept (record.lua), it is
-- the last member, with the score +inf: `records` is then 1, and else 0, and `newest_rank` is where
-- the last charge is.
-- Constants: limit, period. Cost: the units.
-- Observes: the units in the window; the number of the charge if it admits, and else the instant at
-- which it will; the instant of the newest charge. For charge u is `top`, the largest w in the set,
-- or 0. v is the last number.
--- constants limit, period
--- cost n
--- functions

-- count_powers returns the units of powers up to `top`, charged from an instant on.
local function count_powers(key, from, top)
  local units, w = 0, 1
  while w <= top do
    local scale = w * w * w
    spent = spent + 1
    units = units + w * redis.call('ZCOUNT', key, -2 ^ 53 * scale, -(math.max(from, 0) + 2 ^ 50) * scale)
    w = w * 2
  end
  return units
end

-- several_units returns the number of the last charge, if that has the form of one of several
-- units, and the largest w.
local function several_units(key, last)
  local lowest, top = tonumber(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]) or -2 ^ 200, 0 -- miniredis: nil for -9e+18
  spent = spent + 8
  if lowest < 0 then top = 1 end
  while top > 0 and top < 2 ^ 16 and lowest < -2 ^ 53 * top * top * top do top = top * 2 end
  return tonumber(string.match(last, '^(%d+):%d+$') or ''), top
end

-- admits_at returns when all but the newest `stay` units have left.
local function admits_at(key, from, period, stay, top, newest)
  if top == 0 then return redis.call('ZRANGE', key, -stay - 1 - records, -stay - 1 - records, 'WITHSCORES')[2] + period end
  -- The search is between two ranks: at most `stay` units are newer than the charge at `high`, and
  -- more are newer than that at `low`.
  local low, high, step, last_to_leave = -redis.call('ZCOUNT', key, from, 2 ^ 53) - 1 - records, -1 - records, 1, newest
  while high - low > 1 do
    spent = spent + 4
    local rank = math.min(low + step, math.floor((low + high) / 2))
    local at = redis.call('ZRANGE', key, rank, rank, 'WITHSCORES')[2] + 0
    if redis.call('ZCOUNT', key, at + 1, 2 ^ 53) + count_powers(key, at + 1, top) <= stay then
      high, last_to_leave, step = rank, at, 2 ^ 53
    else
      low, step = rank, step * 2
    end
  end
  return last_to_leave + period
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

-- remove_expired removes up to 100 charges that have left the window, where some are of several
-- units.
local function remove_expired(key, till)
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', key, 0, till, 'LIMIT', 0, 100)) do
    local first, units = string.match(string.sub(member, 1, 40), '^(%d+):?(%d*)$')
    local gone = entries(tonumber(first or 0), tonumber(units or '') or 1)
    spent = spent + 2 + #gone
    redis.call('ZREM', key, member, unpack(gone))
  end
end
--- evaluate
local last, top = redis.pcall('ZRANGE', key, newest_rank, newest_rank, 'WITHSCORES'), 0
value = last
if last.err then foreign = last.err end -- hold.lua raises it, unless the key has another type
local number, newest = tonumber(last[1]), tonumber(last[2])
if newest and not number and newest <= latest then -- else it is foreign, or a record
  number, top = several_units(key, last[1])
elseif newest and string.find(last[1], '%D') then
  number = nil
end
if number and newest and newest >= 0 and newest <= latest and newest % 1 == 0 and number >= newest and number <= latest + ahead then
  t = newest > now and newest or now
  local from = t - period + 1
  a, c, u, v = redis.call('ZCOUNT', key, string.format(whole, from), '9007199254740992'), newest, top, number
  if top > 0 then a = a + count_powers(key, from, top) end
  admits = a + n <= limit
  if number == latest + ahead then -- the next number would be foreign
    admits, b = false, t + 1
  elseif admits then
    b = t > number and t or number + 1
  else
    b = n > limit and 0 or admits_at(key, from, period, limit - n, top, newest)
  end
else
  foreign = foreign or last[1]
  admits, t, a, b, c, u = n <= limit, now, 0, now, 0, 0
end
--- retry
retry = b
--- charge
-- It begins with a write that Redis refuses while it is out of memory: after any other write it
-- would refuse none. It removes only so much of what has left the window that it takes a bounded
-- time.
if foreign then
  err = redis.pcall('SET', key, '', 'PX', 1000).err
  if not err then redis.call('DEL', key) end
  records, newest_rank = 0, '-1'
end
if not err then
  local single, added, done = u == 0 and n == 1, 1, nil
  if single then
    local at = string.format(whole, t)
    done = redis.pcall('ZADD', key, at, b == t and at or string.format(whole, b))
  else
    local list = entries(b, n, t)
    added = #list / 2
    spent = spent + added
    done = redis.pcall('ZADD', key, unpack(list))
  end
  err = type(done) == 'table' and done.err or nil
  if not err and c > 0 and u == 0 and added == 1 then
    local expired = math.min(redis.call('ZCARD', key) - a - 1 - records, 1000)
    if expired > 0 then
      spent = spent + expired / 4
      redis.call('ZREMRANGEBYRANK', key, 0, expired - 1)
    end
  elseif not err and c > 0 then
    remove_expired(key, t - period)
  end
  -- A record is needed for longer.
  if not err and records == 0 then redis.call('PEXPIREAT', key, string.format(whole, (t + period) / 1000 + 1)) end
end
--- force
-- It is at most the largest limit of a log: this limit may be a smaller one than that by which they
-- were held.
n = math.min(n, 100000)
if not admits and v and v ~= latest + ahead then b = t > v and t or v + 1 end
--- needed
till = (c > 0 and c or now) + period
--- tail period
--- refund
-- It removes the entries of the charge with the number `handle`, if it is in the set with as many
-- units: after a reset another may have the number.
local gone = entries(handle, units)
local done = redis.pcall('ZREM', key, gone[1], units == 1 and handle or gone[1])
if type(done) == 'table' then
  mistyped(done.err)
elseif done > 0 and gone[2] then
  redis.call('ZREM', key, unpack(gone, 2))
end
