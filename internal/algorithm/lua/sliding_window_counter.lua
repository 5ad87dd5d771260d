-- sliding_window_counter.
-- Value: a string, 'C1 opened current before': the units used in the aligned window that was charged
-- first at `opened`, in microseconds, and in the one before it.
-- Constants: limit, period. Cost: the units.
-- Observes: current, before, opened, of the window in which t is. For charge u is the digits of
-- `opened`, if it is stored, and v the start of the window.
--- constants limit, period
--- cost n
--- evaluate
t = now
if value then
  u, a, b = string.match(#value <= longest and value or '', '^C1 ([1-9]%d*) (%d+) (%d+)$')
  c, a, b = tonumber(u or ''), tonumber(a), tonumber(b)
  if not (c and c <= latest and a <= 2 ^ 30 and b <= 2 ^ 30) then
    u, foreign = nil, value
  elseif c > now then
    t = math.max(now, c - c % period) -- the clock has stepped back
  end
end
v = t - t % period
if not u or c < v - period then
  a, b, c, u = 0, 0, t, nil
elseif c < v then
  b = a -- not in one assignment: gopher-lua
  a, c, u = 0, t, nil
end
local free = limit - a - n
admits = free >= b
if not admits and free >= 0 then -- b * left <= free * period? The products may be beyond 2^53: each is compared in two parts
  local left = period - t + v
  local low, rest = b * (left % 2 ^ 23), free * (period % 2 ^ 23)
  local weight = b * math.floor(left / 2 ^ 23) + math.floor(low / 2 ^ 23)
  local room = free * math.floor(period / 2 ^ 23) + math.floor(rest / 2 ^ 23)
  admits = weight < room or (weight == room and low % 2 ^ 23 <= rest % 2 ^ 23)
end
--- retry
local weighs, room = b, limit - a - n
retry = v + period
if room < 0 then weighs, room, retry = a, limit - n, retry + period end
-- When `weighs` units weigh no more than `room`. The product of that and the period may be beyond
-- 2^53.
local high = room * math.floor(period / 2 ^ 22)
local low = high % weighs * 2 ^ 22 + room * (period % 2 ^ 22)
retry = retry - math.floor(high / weighs) * 2 ^ 22 - math.floor(low / weighs)
--- charge
text = string.format('C1 %s %d %d', u or string.format(whole, c), a + n, b) -- the digits as they were read
lasts = v + period * (a + n > 0 and 2 or 1) - now
--- force
n = math.min(n, 2 ^ 30 - a) -- more than any limit
--- needed
if a + b > 0 then till = v + period * (a > 0 and 2 or 1) end
--- tail 2 * period
--- refund
-- It subtracts the units from the window that was opened at `handle`, while it is the current one:
-- of the one before it is not known whether it is the same, after a reset.
if u and c == handle and a > 0 then
  n = -math.min(units, a)
  charges = a + n + b > 0
  if not charges then
-- CLEAR
  end
end
