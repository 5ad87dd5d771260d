-- in_flight.lua limits how many units are in use at the same time. Its units are slots. Slots are only held and
-- never charged. So no call is a plain decision, and this file has functions look and act of its own, which
-- replace those of holds.lua.
--
-- Stored: a sorted set with a member for each call that holds slots. The member consists of 's' and the id that
-- the caller gave the call, as in 's123', or 's123:5' for 5 slots. Its score is the instant at which the slots
-- expire. Because the id does not change with a renewal, the slots can be renewed again even if the reply to the
-- last renewal was lost. If some calls hold several slots, there is also the member '+'. Its score is negative: minus
-- the number of extra slots. The extra slots of a call are all its slots but one.
-- Constants: the limit.

-- add_extra adds `units` to the number of extra slots, and returns the new number.
local function add_extra(key, extra, units)
  if units == 0 then return extra end
  extra = math.max(0, extra + units)
  if extra > 0 then redis.call('ZADD', key, -extra, '+') else redis.call('ZREM', key, '+') end
  return extra
end

local function in_flight(constants_at)
  local count = ARGV[constants_at] + 0
  local limit = {}

  function limit.numbers(position)
    ARGV[position] = ARGV[position] + 0
  end

  -- These three functions are never reached, because a script with slots makes no plain decision. But decide.lua
  -- calls them, and the composer refuses the call of a function that does not exist.
  function limit.cost()
    return 0, 0
  end

  function limit.evaluate()
    return false
  end

  function limit.charge()
    return nil
  end

  -- look removes slots that have expired, unless the call only frees one slot. It has the results of look in
  -- holds.lua, except that x is whether the key was empty, y is the number of extra slots, and `held` is the number
  -- of slots that are taken, which only a decision needs. The results that are about a record are nil.
  function limit.look(key, _, now, task, units)
    local strange, none, more, sum = nil, nil, 0, 0
    spent = spent + 10
    if task <= '2' or units > 1 or task == '6' or task == '5' then -- to free one slot, none of this is needed
      local lowest, members = 0, redis.pcall('ZRANGE', key, '0', '1', 'WITHSCORES')
      if members.err then
        strange = limit.mistyped(members.err)
      else
        local member, expires = members[1], tonumber(members[2]) or 2 ^ 53 -- miniredis: nil for a number like 9e+18
        none = not member
        if member == '+' and expires < 0 then
          more, lowest, member, expires = -expires, 1, members[3], tonumber(members[4]) or 2 ^ 53
        end
        if not none and not (member and expires >= 0 and expires <= latest and more % 1 == 0 and more < 2 ^ 40) then
          strange, more = member or '+', 0
        elseif member and expires <= now then
          -- At most 1000 expired members are removed, so that it takes a bounded time. If there are more, the
          -- rest count until the next call. The expired members have the lowest scores except for '+'.
          local last, freed = lowest + math.min(redis.call('ZCOUNT', key, 0, now), 1000) - 1, 0
          if more > 0 then
            for _, gone in ipairs(redis.call('ZRANGE', key, lowest, last)) do
              freed = freed + (tonumber(string.match(gone, ':(%d+)$') or '') or 1) - 1
            end
          end
          redis.call('ZREMRANGEBYRANK', key, lowest, last)
          more = add_extra(key, more, -freed)
          spent = spent + (last - lowest) / 2
        end
      end
      if strange and task ~= '5' then
        limit.check_version(strange)
      end
      if task <= '2' and not (strange or none) then sum = redis.call('ZCARD', key) + more - (more > 0 and 1 or 0) end
    end
    return nil, units + sum <= count, now, 0, 0, 0, strange, none, more, nil, nil, nil, nil, sum
  end

  -- act takes, renews or frees slots. To free them is also to settle or refund them. It has the results of act in
  -- holds.lua.
  function limit.act(key, now, task, all, units, given, _, _, handle, _, duration, _, _, _, _, foreign, x, y)
    local failure, hold_id, hold_end, none, more = nil, nil, nil, x, y
    local charges = task == '1' or task == '2'
    if foreign and (task == '5' or charges) then -- even if the call is denied, the value must not stay: it may have no TTL
      local done = redis.pcall('SET', key, '', 'PX', 1000)
      if all then
        failure = done.err
        if not failure then redis.call('DEL', key) end
      end
      none = true
    end
    local takes = all and charges and not failure
    local id = takes and given or handle
    local member = string.format(units == 1 and 's' .. whole or 's' .. whole .. ':' .. whole, id, units)
    if not (failure or charges or task == '0' or task == '5' or foreign or id == 0) then -- '5': a reset keeps the slots that are held
      local removed = redis.pcall('ZREM', key, member)
      if type(removed) == 'table' then
        if not string.find(removed.err, 'WRONGTYPE', 1, true) then error(removed.err) end
      elseif removed > 0 then
        more, takes = add_extra(key, more, 1 - units), task == '6'
      end
    end
    if takes then -- the key is kept until its last slot expires
      local expires = now + duration
      local last, added = expires, redis.pcall('ZADD', key, string.format(whole, expires), member)
      if type(added) == 'table' then
        failure = added.err
      else
        add_extra(key, more, units - 1)
        if not none then last = tonumber(redis.call('ZRANGE', key, '-1', '-1', 'WITHSCORES')[2]) or 2 ^ 53 end -- miniredis: nil for inf
        if last > latest then redis.call('ZREMRANGEBYRANK', key, -1, -1) end -- a slot that we cannot have stored; only one is removed each time
        redis.call('PEXPIREAT', key, string.format(whole, math.min(last, latest) / 1000 + 1))
        hold_id, hold_end = id, expires
      end
    end
    return failure, hold_id, hold_end
  end

  return limit
end

return in_flight
