-- sliding_window_counter.
-- Value: a string, FORM .. 'opened current before': the units used in the aligned window that was charged first at
-- `opened`, in microseconds, and in the one before it. FORM is a version, and the period for a limit whose key does not
-- contain it: 'C1 ' or 'C1 period '.
-- Constants: limit, period, FORM. Cost: the units.
-- Observes: current, before, opened, of the window in which t is. For charge u is the digits of `opened`, if it is
-- stored, and v the start of the window.
--- constants limit, period, form
--- cost n
--- functions

-- exceeds returns whether before * left > free * period, that is, whether the window before weighs more than
-- is free. The products may be beyond 2^53: each is compared in two parts, so nothing is rounded.
local function exceeds(before, left, free, period)
  local low, rest = before * (left % 2 ^ 23), free * (period % 2 ^ 23)
  local weight = before * math.floor(left / 2 ^ 23) + math.floor(low / 2 ^ 23)
  local room = free * math.floor(period / 2 ^ 23) + math.floor(rest / 2 ^ 23)
  return weight > room or (weight == room and low % 2 ^ 23 > rest % 2 ^ 23)
end
--- evaluate
t = now
if value then
  local length = period
  if #value <= longest and string.sub(value, 1, #form) == form then
    u, a, b = string.match(value, '^([1-9]%d*) (%d+) (%d+)$', #form + 1)
    c, a, b = tonumber(u or ''), tonumber(a), tonumber(b)
  else -- of another period: nothing is used, but t is no earlier than the window
    length, c = string.match(#value <= longest and value or '', '^C1 (%d+) (%d+) %d+ %d+$')
    length, c, a, b = tonumber(length or 0), tonumber(c or ''), 0, 0
  end
  if not (c and c <= latest and length >= 1000 and length <= ahead and a <= 2 ^ 30 and b <= 2 ^ 30) then
    u, foreign = nil, value
  elseif c > now then
    t = math.max(now, c - c % length)
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
admits = free >= b or (free >= 0 and not exceeds(b, period - t + v, free, period))
--- charge
text = form .. string.format('%s %d %d', u or string.format(whole, c), a + n, b) -- the digits as they were read
lasts = v + period * (a + n > 0 and 2 or 1) - now
--- hold

-- needed returns the instant until which what is charged is needed, or nil if it is not.
local function needed(key, t, current, before)
  if not t then return needed(key, select(2, evaluate(key, 0))) end
  if current + before > 0 then return t - t % period + period * (current > 0 and 2 or 1) end
end

-- tail returns for how much longer the key is needed once units were charged.
local function tail() return 2 * period end
--- refund

-- refund subtracts the units from the window that was opened at `id`, while it is the current one: of the one before it
-- is not known whether it is the same, after a reset.
local function refund(key, n, id)
  local _, t, current, before, opened, digits, start = evaluate(key, 0)
  if not digits or opened ~= id or current == 0 then return end
  n = math.min(n, current)
  if current - n + before == 0 then clear(key) else return charge(key, -n, t, current, before, opened, digits, start) end
end
