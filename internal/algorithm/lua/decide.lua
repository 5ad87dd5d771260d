-- Decides for a limiter of one limit: one decision for each key.
-- KEYS     the key of the limit, one for each decision
-- ARGV     the limit's constants; from `first` on '1' to charge what is admitted or '0' to evaluate only, and
--          the cost, `width` arguments in all: once for all decisions, or once for each. In a script for
--          limits of different numbers each decision has the constants behind its cost, where `own` finds them.
-- Replies  {admits, t, a, b, c} for each decision, in one list: 1 or 0, and what the algorithm observed
--          before it charged. If there are several decisions, one that fails, or that comes after `most` was
--          spent, replies 2, and charges nothing. One on a key with holds replies 3, and charges nothing: it
--          takes hold.lua. One that fails after it was charged replies 4. Where `each` is 7, because a limit is a
--          queue, there are two numbers more: its largest free place, and the epoch.
--
-- The algorithm's file has two functions. `constants` and `cost` are where its arguments begin in ARGV.
--   evaluate(key, constants, cost)  returns admits, t, a, b, c, u, v, foreign, free: whether it admits the cost,
--          the instant of the decision (`now`, or one that is stored if the clock has stepped back since), the
--          Observation, two values for charge, and the value if it is foreign: none that the algorithm
--          writes. It is true for a key of another type. `free` is of a queue. It writes nothing.
--   charge(key, constants, cost, t, a, b, c, u, v)  charges what evaluate admitted. It returns nothing, or the
--          error of Redis, and of a queue these two.

local reply, count, i, at, charging = each == 7 and { 0, 0, 0, 0, 0, 0, 0 } or { 0, 0, 0, 0, 0 }, #KEYS, 1, first, false
local step = (own or #ARGV >= first + width) and width or 0

-- decide makes the decisions from the i-th on. It returns the error of the only one.
local function decide()
  while i <= count do
    local r, err, epoch = each * (i - 1), nil, nil
    charging = false
    if spent > most then
      for at = r + 2, r + each do reply[at] = 0 end
      reply[r + 1] = 2
    else
      local constants = own and own(at) or 1
      local admits, t, a, b, c, u, v, foreign, free = evaluate(KEYS[i], constants, at + 1)
      local held = foreign and foreign ~= true and string.find(foreign, '|', 1, true)
      if ARGV[at] == '1' and not held then
        charging = true
        if admits then
          local left
          err, left, epoch = charge(KEYS[i], constants, at + 1, t, a, b, c, u, v)
          free = left or free
        elseif foreign then
          redis.pcall('SET', KEYS[i], '', 'PX', 1000) -- a foreign value may have no TTL
        end
      end
      if err and count == 1 then return { err = err } end
      reply[r + 1], reply[r + 2], reply[r + 3], reply[r + 4], reply[r + 5] = held and 3 or err and 2 or admits and 1 or 0, t, a, b, c
      if each == 7 then reply[r + 6], reply[r + 7] = free, epoch or 0 end
    end
    i, at = i + 1, at + step
  end
end

if count == 1 then return decide() or reply end
while i <= count do
  if not pcall(decide) then -- the i-th has failed, and is the only one to do so
    for r = each * (i - 1) + 2, each * i do reply[r] = 0 end
    reply[each * (i - 1) + 1] = charging and 4 or 2
    i, at = i + 1, at + step
  end
end
return reply
