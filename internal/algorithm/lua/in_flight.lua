-- in_flight: what hold.lua does with a limit of slots, which has no state but what is held. No call
-- on it is plain.
-- Value: a sorted set with a member for each call that holds slots: 's' and the id that the caller
-- gave it, as in 's123', or 's123:5' if it holds 5 units. Its score is the instant at which they
-- are free again. Each call has a member of its own, so that it can be renewed although the reply
-- to the last renewal was lost. If some hold several units, the member '+' has as its score,
-- negative, how many units there are beyond one for each member.
-- Constants: limit.
--- constants limit
--- functions

-- add_extra changes how many units there are beyond one for each member, and returns it.
local function add_extra(key, extra, units)
  if units == 0 then return extra end
  extra = math.max(0, extra + units)
  if extra > 0 then redis.call('ZADD', key, -extra, '+') else redis.call('ZREM', key, '+') end
  return extra
end
--- keeps foreign, empty, extra
--- look
local foreign, empty, extra, held = nil, nil, 0, 0
spent = spent + work
if decides or units > 1 or op == '6' or op == '5' then -- who frees one unit needs none of this
  local lowest, members = 0, redis.pcall('ZRANGE', key, '0', '1', 'WITHSCORES')
  if members.err then
    foreign = mistyped(members.err)
  else
    local member, expires = members[1], tonumber(members[2]) or 2 ^ 53 -- miniredis: nil for a number like 9e+18
    empty = not member
    if member == '+' and expires < 0 then
      extra, lowest, member, expires = -expires, 1, members[3], tonumber(members[4]) or 2 ^ 53
    end
    if not empty and not (member and expires >= 0 and expires <= latest and extra % 1 == 0 and extra < 2 ^ 40) then
      foreign, extra = member or '+', 0
    elseif member and expires <= now then
      -- Up to 1000 members that have expired are removed, the lowest but for '+': that takes a
      -- bounded time, and the others count until the next call.
      local last, freed = lowest + math.min(redis.call('ZCOUNT', key, 0, now), 1000) - 1, 0
      if extra > 0 then
        for _, gone in ipairs(redis.call('ZRANGE', key, lowest, last)) do
          freed = freed + (tonumber(string.match(gone, ':(%d+)$') or '') or 1) - 1
        end
      end
      redis.call('ZREMRANGEBYRANK', key, lowest, last)
      extra = add_extra(key, extra, -freed)
      spent = spent + (last - lowest) / 2
    end
  end
  if foreign and op ~= '5' then
-- NEWER
  end
  if decides and not (foreign or empty) then held = redis.call('ZCARD', key) + extra - (extra > 0 and 1 or 0) end
end
local admits, t, a, b, c = units + held <= limit, now, 0, 0, 0
--- act
if foreign and (op == '5' or decides and op ~= '0') then -- it may have no TTL
  local done = redis.pcall('SET', key, '', 'PX', 1000)
  if all then
    err = done.err
    if not err then redis.call('DEL', key) end
  end
  empty = true
end
local takes = all and (op == '1' or op == '2') and not err
local id = takes and given or handle
local member = string.format(units == 1 and 's' .. whole or 's' .. whole .. ':' .. whole, id, units)
if not (err or decides or op == '5' or foreign or id == 0) then -- reset keeps what is held
  local removed = redis.pcall('ZREM', key, member)
  if type(removed) == 'table' then
    mistyped(removed.err)
  elseif removed > 0 then
    extra, takes = add_extra(key, extra, 1 - units), op == '6'
  end
end
if takes then -- the slots expire a duration from now. The key is kept until its latest slot is free.
  local expires = now + duration
  local last, added = expires, redis.pcall('ZADD', key, string.format(whole, expires), member)
  if type(added) == 'table' then
    err = added.err
  else
    extra = add_extra(key, extra, units - 1)
    if not empty then last = tonumber(redis.call('ZRANGE', key, '-1', '-1', 'WITHSCORES')[2]) or 2 ^ 53 end -- miniredis: nil for inf
    if last > latest then redis.call('ZREMRANGEBYRANK', key, -1, -1) end -- no slot of ours; one is removed at a time
    redis.call('PEXPIREAT', key, string.format(whole, math.min(last, latest) / 1000 + 1))
    reply[r + 7], reply[r + 8] = id, expires
  end
end
