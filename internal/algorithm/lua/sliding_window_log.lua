-- sliding_window_log.lua remembers each charge.
--
-- Stored: a sorted set with an entry for each charge. The score of the entry is the instant of the charge in
-- microseconds. The member of the entry is the number of the charge: its instant, or the number of the charge before
-- plus 1 if that is larger. So entries of one instant have different members, and stay in the order in which they
-- were added. Such an entry counts as one unit.
--
-- A charge of several units has several entries. The first one counts as one unit, and has the member 'number:units'.
-- The binary form of units - 1 is a sum of powers of two. For each power w in it there is an entry that counts as w
-- units, with the member 'number*w' and the score -(instant + 2^50) * w^3. So the scores of two different w lie in
-- separate ranges, and Redis counts the units since an instant by one command for each w. A refund removes only the
-- entries of its charge. While the set has a charge of several units, later charges of one unit have the form
-- 'number:1', too.
--
-- If a record of holds is stored, it is the last member, with the score +inf. The parameter `records` is then 1,
-- otherwise 0.
--
-- The `value` that functions get is a list: the member and the score of the newest charge, as Redis replies them.
-- Constants: the limit and the period.
-- Cost: the units.
-- Observed: a is the number of units in the window. If the limit admits, b is the number that the charge gets;
-- otherwise b is the instant from which the limit would admit, or 0 if the cost is above the limit. c is the instant
-- of the newest charge, or 0. x is the largest w in the set, or 0. y is the number of the newest charge, or nil.

-- count_powers returns how many units were charged at the instant `from` or later, in the entries for powers of two up
-- to `top`.
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

-- several_units returns the number of the newest charge if its member has the form 'number:units', otherwise nil. It
-- also returns the largest w in the set, or 0.
local function several_units(key, last)
  local lowest, top = tonumber(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]) or -2 ^ 200, 0 -- miniredis: nil for -9e+18
  spent = spent + 8
  if lowest < 0 then top = 1 end
  while top > 0 and top < 2 ^ 16 and lowest < -2 ^ 53 * top * top * top do top = top * 2 end
  return tonumber(string.match(last, '^(%d+):%d+$') or ''), top
end

-- admits_at returns the instant from which at most `stay` units are still in the window, because all older ones have
-- left it.
local function admits_at(key, records, from, period, stay, top, newest)
  if top == 0 then return redis.call('ZRANGE', key, -stay - 1 - records, -stay - 1 - records, 'WITHSCORES')[2] + period end
  -- This searches for the oldest charge with at most `stay` units in newer charges. At most `stay` units are newer than
  -- the charge at rank `high`. More are newer than the charge at rank `low`. The steps from `low` double until they
  -- reach beyond the charge; then the search halves the distance.
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

-- entries returns the members of a charge in the form of several units, which a charge of one unit may have, too. If an
-- instant is given, each member follows its score in the list.
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

-- remove_expired removes up to 100 charges whose instant is `till` or earlier, from a set that has charges of several
-- units.
local function remove_expired(key, till)
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', key, 0, till, 'LIMIT', 0, 100)) do
    local first, units = string.match(string.sub(member, 1, 40), '^(%d+):?(%d*)$')
    local gone = entries(tonumber(first or 0), tonumber(units or '') or 1)
    spent = spent + 2 + #gone
    redis.call('ZREM', key, member, unpack(gone))
  end
end

local function sliding_window_log(constants_at)
  local count, period = ARGV[constants_at] + 0, ARGV[constants_at + 1] + 0
  local limit = {}
  limit.window = period
  limit.stores_log = true

  function limit.numbers(position)
    ARGV[position], ARGV[position + 1] = ARGV[position] + 0, ARGV[position + 1] + 0
  end

  function limit.cost(position)
    return ARGV[position] + 0, 0
  end

  function limit.more(n, _, units)
    return n + units, 0
  end

  function limit.evaluate(value, now, n, _, key, records)
    local fits, instant, used, next_number, top, wrong = n <= count, now, 0, now, 0, value.err
    local number, newest = tonumber(value[1]), tonumber(value[2])
    if newest and not number and newest <= latest then -- otherwise it is foreign, or a record
      number, top = several_units(key, value[1])
    elseif newest and string.find(value[1], '%D') then
      number = nil
    end
    if number and newest and newest >= 0 and newest <= latest and newest % 1 == 0 and number >= newest and number <= latest + ahead then
      if newest > now then instant = newest end
      local since = instant - period + 1
      used = redis.call('ZCOUNT', key, string.format(whole, since), '9007199254740992')
      if top > 0 then used = used + count_powers(key, since, top) end
      fits = used + n <= count
      if number == latest + ahead then -- the next number would be foreign
        fits, next_number = false, instant + 1
      elseif fits then
        next_number = instant > number and instant or number + 1
      else
        next_number = n > count and 0 or admits_at(key, records, since, period, count - n, top, newest)
      end
    else
      wrong, number, newest, top = wrong or value[1], nil, 0, 0
    end
    return fits, instant, used, next_number, newest, wrong, top, number
  end

  function limit.when(_, _, _, _, b)
    return b
  end

  -- charge writes the entry itself, and returns the error of Redis as its third result. It adds the charge before it removes
  -- old ones, because a full Redis refuses only the first write of a script. It removes a bounded number of charges
  -- that have left the window, so that it takes a bounded time.
  function limit.charge(now, n, _, t, a, _, c, x, y, key, records)
    local done, failed
    local added = 1
    local number = y == latest + ahead and t + 1 or y and y >= t and y + 1 or t
    if x == 0 and n == 1 then
      local instant = string.format(whole, t)
      done = redis.pcall('ZADD', key, instant, number == t and instant or string.format(whole, number))
    else
      local list = entries(number, n, t)
      added = #list / 2
      spent = spent + added
      done = redis.pcall('ZADD', key, unpack(list))
    end
    if type(done) == 'table' then failed = done.err end
    if not failed and c > 0 and x == 0 and added == 1 then
      local expired = math.min(redis.call('ZCARD', key) - a - 1 - records, 1000)
      if expired > 0 then
        spent = spent + expired / 4
        redis.call('ZREMRANGEBYRANK', key, 0, expired - 1)
      end
    elseif not failed and c > 0 then
      remove_expired(key, t - period)
    end
    -- If there is a record of holds, close in holds.lua sets the TTL, because the record may be needed for longer.
    if not failed and records == 0 then redis.call('PEXPIREAT', key, string.format(whole, (t + period) / 1000 + 1)) end
    return nil, t + period - now, failed
  end

  -- bound allows as many units as the largest limit that a log may have, because the units may have been held with a
  -- larger limit than this one.
  function limit.bound(units)
    return math.min(units, 100000), 0
  end

  function limit.needed(now, _, _, c)
    return (c > 0 and c or now) + period
  end

  function limit.tail()
    return period
  end

  -- refund removes the entries of the charge with the number `handle`, if that charge has `units` units. Otherwise it
  -- is another charge, which got the same number after a reset.
  function limit.refund(units, handle, _, _, _, _, _, _, _, key)
    local gone = entries(handle, units)
    local done = redis.pcall('ZREM', key, gone[1], units == 1 and handle or gone[1])
    if type(done) == 'table' then
      if not string.find(done.err, 'WRONGTYPE', 1, true) then error(done.err) end
    elseif done > 0 and gone[2] then
      redis.call('ZREM', key, unpack(gone, 2))
    end
    return false, false, 0, 0
  end

  return limit
end

return sliding_window_log
