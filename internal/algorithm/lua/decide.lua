-- Decides for a limiter of one limit: one decision for each key.
-- KEYS     the key of the limit, one for each decision
-- ARGV     the limit's constants; from `first` on '1' to charge what is admitted or '0' to evaluate only, and
--          the cost, `width` arguments in all: once for all decisions, or once for each. In a script for
--          limits of different numbers each decision has the constants behind its cost, where `own` finds them.
-- Replies  {admits, t, a, b, c} for each decision, in one list: 1 or 0, and what the algorithm observed
--          before it charged. If there are several decisions, one that fails, or that comes after `most` was
--          spent, replies 2, and charges nothing. One on a key with holds replies 3, and charges nothing: it
--          takes hold.lua. One that fails after it was charged replies 4.
--
-- The algorithm's file has two functions. `constants` and `cost` are where its arguments begin in ARGV.
--   evaluate(key, constants, cost)  returns admits, t, a, b, c, u, v, foreign: whether it admits the cost,
--          the instant of the decision (`now`, or one that is stored if the clock has stepped back since), the
--          Observation, two values for charge, and the value if it is foreign: none that the algorithm
--          writes. It is true for a key of another type. It writes nothing.
--   charge(key, constants, cost, t, a, b, c, u, v)  charges what evaluate admitted. It returns nothing, or the
--          error of Redis.

local reply, count, i, at, charging = { 0, 0, 0, 0, 0 }, #KEYS, 1, first, false
local step = (own or #ARGV >= first + width) and width or 0

-- decide makes the decisions from the i-th on. It returns the error of the only one.
local function decide()
  while i <= count do
    local r = 5 * i
    charging = false
    if spent > most then
      reply[r - 4], reply[r - 3], reply[r - 2], reply[r - 1], reply[r] = 2, 0, 0, 0, 0
    else
      local err
      local constants = own and own(at) or 1
      local admits, t, a, b, c, u, v, foreign = evaluate(KEYS[i], constants, at + 1)
      local held = foreign and foreign ~= true and string.find(foreign, '|', 1, true)
      if ARGV[at] == '1' and not held then
        charging = true
        if admits then
          err = charge(KEYS[i], constants, at + 1, t, a, b, c, u, v)
        elseif foreign then
          redis.pcall('SET', KEYS[i], '', 'PX', 1000) -- a foreign value may have no TTL
        end
      end
      if err and count == 1 then return { err = err } end
      reply[r - 4], reply[r - 3], reply[r - 2], reply[r - 1], reply[r] = held and 3 or err and 2 or admits and 1 or 0, t, a, b, c
    end
    i, at = i + 1, at + step
  end
end

if count == 1 then return decide() or reply end
while i <= count do
  if not pcall(decide) then -- the i-th has failed, and is the only one to do so
    local r = 5 * i
    reply[r - 4], reply[r - 3], reply[r - 2], reply[r - 1], reply[r] = charging and 4 or 2, 0, 0, 0, 0
    i, at = i + 1, at + step
  end
end
return reply
