-- Does for a limiter all that takes more than decide.lua: decisions on keys with holds, holds themselves, refunds and
-- resets. Of the limits of a decision all admit, or none is charged.
-- KEYS     the keys of the limits, all of one call and then those of the next
-- ARGV     each limit's constants and the duration of its holds; from `first` on `width` arguments for each call: the
--          operation, n units, a number m, and two numbers for each limit, by which it finds a charge or a hold
--            '0'  decide on n, and charge nothing
--            '1'  decide on n, and charge them; slots are held, with the id m
--            '2'  decide on n, and hold them; m is the id of the holds if there are none yet, and of slots
--            '3'  settle: charge m in place of n units held
--            '4'  take back n units that were charged
--            '5'  forget what was charged
--            '6'  hold n units for longer
--            '7'  free n slots
-- Replies  {done, t, a, b, c, held, id, expiry} for each limit of each call, in one list. `done` is 1 or 0: whether
--          the limit admits, of operations that decide. `held` is the units held besides. If there are several calls,
--          one that comes after `most` was spent, or that failed before it changed anything, replies 2; one that
--          failed later replies 4.

local reply, at, size = {}, first, #limits
for base = 0, #KEYS - 1, size do
  local op, n, m = ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  local decides, all, err, wrote = op <= '2', true, nil, false
  if spent > most then err = 'late' end
  for i = 1, size do
    local limit, r = limits[i], 8 * (base + i)
    for j = r - 7, r do reply[j] = 0 end
    reply[r - 7] = 1
    err = err or limit.open(KEYS[base + i])
    if decides and not err then
      local admits, t, a, b, c, held, foreign = limit.decide(KEYS[base + i], n)
      reply[r - 7], reply[r - 6], reply[r - 5], reply[r - 4], reply[r - 3], reply[r - 2] = admits and 1 or 0, t, a, b, c, held
      all = all and admits
      limit.foreign = foreign
    end
  end
  for i = 1, err and 0 or size do
    local limit, key, r, x = limits[i], KEYS[base + i], 8 * (base + i), at + 1 + 2 * i
    local a, b = tonumber(ARGV[x]), tonumber(ARGV[x + 1])
    if op == '0' or (decides and not all) then
      if limit.foreign and op ~= '0' then redis.pcall('SET', key, '', 'PX', 1000) end -- it may have no TTL
    elseif decides and (limit.slots or (op == '2' and not limit.queues)) then
      reply[r - 1], reply[r] = limit.add_hold(n, m)
    elseif decides then
      err = limit.add_charge(key, n)
    elseif op == '7' then
      if limit.slots then limit.release(n, a) end
    elseif limit.queues and (op == '3' or op == '6') then
      if op == '3' and m == 0 then err = limit.take_back(key, n, a, b) end
    elseif op == '3' then
      err = limit.settle(key, n, m, a, b)
    elseif op == '4' then
      err = limit.take_back(key, n, a, b)
    elseif op == '5' then
      limit.reset(key)
    elseif op == '6' then
      local id, expiry = limit.renew(n, a, b)
      reply[r - 1], reply[r] = id or 0, expiry or 0
    end
    err = err or limit.close(key)
    if err then break end
    wrote = true
  end
  if err and #KEYS == size then return { err = err } end
  if err then reply[8 * base + 1] = wrote and 4 or 2 end
  spent, at = spent + 10, at + width
end
return reply
