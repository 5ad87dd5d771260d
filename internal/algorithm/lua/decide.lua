-- Decides a limiter of one limit, for each key on its own.
-- KEYS     the limit's state, one for each decision
-- ARGV     the limit's constants; from `first` on '1' to charge what is admitted or '0' to look, and the
--          cost, `width` arguments in all: once for all decisions, or once for each
-- Replies  {admits, t, a, b, c} for each decision, in one list: 1 or 0, and what the algorithm observed
--          before it charged. Of several decisions one that fails, or comes after too much was spent,
--          replies 2, and charges nothing.

local reply, at = { 0, 0, 0, 0, 0 }, first
local step = #ARGV >= first + width and width or 0
for i = 1, #KEYS do
  local r = 5 * i
  if spent > most then
    reply[r - 4], reply[r - 3], reply[r - 2], reply[r - 1], reply[r] = 2, 0, 0, 0, 0
  else
    local err
    local admits, t, a, b, c, u, v, foreign = evaluate(KEYS[i], 1, at + 1)
    if ARGV[at] == '1' then
      if admits then
        err = charge(KEYS[i], 1, at + 1, t, a, b, c, u, v)
      elseif foreign then
        redis.pcall('SET', KEYS[i], '', 'PX', 1000) -- what is not ours would never expire
      end
    end
    if err and #KEYS == 1 then return { err = err } end
    reply[r - 4], reply[r - 3], reply[r - 2], reply[r - 1], reply[r] = err and 2 or admits and 1 or 0, t, a, b, c
  end
  at = at + step
end
return reply
