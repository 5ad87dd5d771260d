-- in_flight: what hold.lua does with a limit of slots, which has no state but what is held.
-- Value: a sorted set with a member for each call that holds slots: 's' and the id that the caller gave it, as in
-- 's123', or 's123:5' if it holds 5 units. Its score is the instant at which they are free again. Each call has a
-- member of its own, so that it can be renewed although the reply to the last renewal was lost. If some hold several
-- units, the member '+' has as its score, negative, how many units there are beyond one for each member.
-- Constants: limit. `duration` is that of the slots.
local foreign, empty, extra

local function name(id, n) return string.format(n == 1 and 's' .. whole or 's' .. whole .. ':' .. whole, id, n) end

-- add_extra changes how many units there are beyond one for each member.
local function add_extra(key, units)
  if units == 0 then return end
  extra = math.max(0, extra + units)
  if extra > 0 then redis.call('ZADD', key, -extra, '+') else redis.call('ZREM', key, '+') end
end

-- remove_expired removes up to 1000 members that have expired, the lowest but for '+': it takes a bounded time, and
-- the others count until the next call.
local function remove_expired(key, lowest)
  local last = lowest + math.min(redis.call('ZCOUNT', key, 0, now), 1000) - 1
  local freed = 0
  if extra > 0 then
    for _, member in ipairs(redis.call('ZRANGE', key, lowest, last)) do
      freed = freed + (tonumber(string.match(member, ':(%d+)$') or '') or 1) - 1
    end
  end
  frees('ZADD', key, 'XX', '0', '')
  redis.call('ZREMRANGEBYRANK', key, lowest, last)
  add_extra(key, -freed)
  spent = spent + (last - lowest) / 2
end

-- open removes what has expired. Who frees one unit needs none of this.
local function open(key, op, n)
  foreign, extra, spent = nil, 0, spent + work
  if n == 1 and (op == '7' or op == '3' or op == '4') then return end
  local first, lowest = redis.pcall('ZRANGE', key, '0', '1', 'WITHSCORES'), 0
  if first.err then
    foreign = mistyped(first.err)
    return
  end
  local member, expiry = first[1], tonumber(first[2]) or 2 ^ 53 -- miniredis: nil for a number like 9e+18
  empty = not member
  if member == '+' and expiry < 0 then extra, lowest, member, expiry = -expiry, 1, first[3], tonumber(first[4]) or 2 ^ 53 end
  if first[1] and not (member and expiry >= 0 and expiry <= latest and extra % 1 == 0 and extra < 2 ^ 40) then
    foreign, extra = true, 0
  elseif member and expiry <= now then
    remove_expired(key, lowest)
  end
end

local function decide(key, n)
  local held = 0
  if not (foreign or empty) then held = redis.call('ZCARD', key) + extra - (extra > 0 and 1 or 0) end
  return n + held <= limit, now, 0, 0, 0, held
end

-- hold adds a member, which expires a slot's duration from now. The key is kept until its latest slot is free.
local function hold(key, n, id)
  local expiry = now + duration
  local last, added = expiry, redis.pcall('ZADD', key, string.format(whole, expiry), name(id, n))
  if type(added) == 'table' then return added.err end
  add_extra(key, n - 1)
  if not empty then last = tonumber(redis.call('ZRANGE', key, '-1', '-1', 'WITHSCORES')[2]) or 2 ^ 53 end -- miniredis: nil for inf
  if last > latest then redis.call('ZREMRANGEBYRANK', key, -1, -1) end -- no slot of ours; one is removed at a time
  redis.call('PEXPIREAT', key, string.format(whole, math.min(last, latest) / 1000 + 1))
  empty = false
  return nil, id, expiry
end

-- remove returns whether the member was there.
local function remove(key, n, id)
  if foreign or id == 0 then return false end
  frees('ZADD', key, 'XX', '0', '')
  local removed = redis.pcall('ZREM', key, name(id, n))
  if removed == 0 or type(removed) == 'table' and mistyped(removed.err) then return false end
  add_extra(key, 1 - n)
  return true
end

-- act does what a call asks for. Reset, '5', keeps what is held.
local function act(key, op, all, n, m, id)
  if foreign and op ~= '0' then -- it may have no TTL
    local done = redis.pcall('SET', key, '', 'PX', 1000)
    if done.err and all then return done.err end
    if all then redis.call('DEL', key) end
    empty = true
  end
  if op == '1' or op == '2' then
    if all then return hold(key, n, m) end
  elseif op == '6' then
    if remove(key, n, id) then return hold(key, n, id) end
  elseif op ~= '0' and op ~= '5' then
    remove(key, n, id)
  end
end

return { open = open, decide = decide, act = act }
