-- in_flight: what hold.lua does with a limit of slots, which has no state but what is held.
-- Value: a sorted set with a member for each call that holds slots: 's' and the id that the caller gave it, as in
-- 's123', or 's123:5' if it holds 5 units. Its score is the instant at which they are free again. Each call has a
-- member of its own, so that it can be renewed although the reply to the last renewal was lost. If some hold several
-- units, the member '+' has as its score, negative, how many units there are beyond one for each member.
-- Constants: limit. `duration` is the position of the duration of the slots in ARGV.
local stored, foreign, extra, failed

local function name(id, n)
  return string.format(n == 1 and 's%.0f' or 's%.0f:%.0f', id, n)
end

-- add_extra changes how many units there are beyond one for each member.
local function add_extra(units)
  if units == 0 then return end
  extra = extra + units
  if extra > 0 then redis.call('ZADD', stored, -extra, '+') else redis.call('ZREM', stored, '+') end
end

-- remove_expired removes up to 1000 members that have expired: it takes a bounded time, and the others count until
-- the next call.
local function remove_expired(lowest)
  local count = math.min(redis.call('ZCOUNT', stored, 0, now), 1000)
  local freed = 0
  if extra > 0 then
    for _, member in ipairs(redis.call('ZRANGE', stored, lowest, lowest + count - 1)) do
      freed = freed + (tonumber(string.match(member, ':(%d+)$') or '') or 1) - 1
    end
  end
  redis.call('ZREMRANGEBYRANK', stored, lowest, lowest + count - 1)
  add_extra(-freed)
  spent = spent + count / 2
end

local function open(key)
  stored, foreign, extra, failed = key, nil, 0, nil
  local first, lowest = redis.pcall('ZRANGE', key, 0, 1, 'WITHSCORES'), 0
  if first.err then
    foreign = mistyped(first.err)
    return
  end
  local member, expiry = first[1], tonumber(first[2])
  if member == '+' then
    extra, lowest, member, expiry = -expiry, 1, first[3], tonumber(first[4])
  end
  if first[1] and not (member and string.find(member, '^s%d+:?%d*$') and expiry >= 0 and expiry < 2 ^ 53 and extra >= 0 and extra < 2 ^ 40) then
    foreign, extra = first[1], 0
  elseif member and expiry <= now then
    remove_expired(lowest)
  end
end

local function decide(_, n)
  local held = 0
  if not foreign then held = redis.call('ZCARD', stored) + extra - (extra > 0 and 1 or 0) end
  return n + held <= ARGV[c], now, 0, 0, 0, held, foreign
end

-- hold has a member until a slot's duration from now. The key is kept until its latest slot is free. Its first write
-- is the only one that Redis refuses while it is out of memory.
local function hold(n, id)
  local expiry = now + ARGV[duration]
  local done = redis.pcall('ZADD', stored, expiry, name(id, n))
  if type(done) == 'table' then
    failed = done.err
    return 0, 0
  end
  add_extra(n - 1)
  local last = redis.call('ZRANGE', stored, -1, -1, 'WITHSCORES')[2]
  redis.call('PEXPIREAT', stored, string.format('%.0f', math.ceil(last / 1000)))
  return id, expiry
end

local function add_hold(n, id)
  if foreign then redis.call('DEL', stored) end
  return hold(n, id)
end

-- remove returns whether the member was there.
local function remove(n, id)
  if foreign or id == 0 or redis.call('ZREM', stored, name(id, n)) == 0 then return false end
  add_extra(1 - n)
  return true
end

local function release(n, id) remove(n, id) end

local function renew(n, id)
  if remove(n, id) then return hold(n, id) end
end

return {
  slots = true, open = open, decide = decide, add_hold = add_hold, release = release, renew = renew,
  settle = function(_, n, _, id) remove(n, id) end,
  take_back = function(_, n, id) remove(n, id) end,
  reset = function() end, -- it keeps what is held
  close = function() return failed end,
}
