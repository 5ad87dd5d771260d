-- token_bucket, gcra and leaky_bucket. The debt is the time until the full capacity is available
-- again. A unit takes period/count = p/q microseconds, in lowest terms. All times are pairs, of
-- whole microseconds and parts of 1/q: so a decision only adds and compares, and nothing is
-- rounded.
-- Value: a string, FORM .. 'ends' or FORM .. 'ends+f', the instant at which the debt ends. FORM is
-- a version and the rate at which it drains: 'B1 count ', or where the key does not tell the period
-- 'B1 count/period '.
-- Constants: FORM, the capacity as a debt (W, F), q, the period. Cost: the debt that it adds (dw,
-- df).
-- Observes: the debt (w, f). It is above the capacity if more was charged than fits, or after a
-- step back of the clock. Of what is stored at another rate, c is how long it still takes there;
-- else c is 0.
--- constants form, W, F, q, period
--- cost dw, df
--- rare

-- unusual returns the debt (w, f) of a value with parts or of another rate; how long that takes at
-- the other rate, or 0; and the value if it is foreign. `parts` is q, `period` this limit's. Used
-- units stay used: the debt is the time that they take at the present rate, rounded up. It is 2 ^ 60
-- if it is that or more.
local function unusual(value, form, parts, period)
  local text = #value <= longest and value .. '+0' or '' -- it stands in for the f of a value without one
  local own, count, per, ends, f = string.sub(value, 1, #form) == form, parts, period, nil, nil
  if own then
    ends, f = string.match(text, '^(%d+)%+([^+]+)%+?0?$', #form + 1)
  else
    count, per, ends, f = string.match(text, '^B1 (%d+)/?(%d*) (%d+)%+([^+]+)%+?0?$')
    count, per = tonumber(count or 0), tonumber(per or '') or period
  end
  ends, f = tonumber(ends or ''), tonumber(f or '')
  if not (f and count > 0 and per > 0 and ends < 2 ^ 53 and f >= 0 and f < count) then return 0, 0, 0, value end
  if ends < now then return 0, 0, 0 end
  if not own then
    local left, rate = ends - now + (f > 0 and 1 or 0), string.match(form, ' (%d+)') / period
    return math.min(math.ceil(left * (count / per / rate) * (1 + 2 ^ -50)), 2 ^ 60), 0, left
  end
  f = math.ceil(f) -- what is not of this version may have fractions of parts
  if f == parts then return ends - now + 1, 0, 0 end
  return ends - now, f, 0
end
--- evaluate
local w, f, left = 0, 0, 0
if value then
  local ends = #value <= longest and string.sub(value, 1, #form) == form and tonumber(string.sub(value, #form + 1))
  if not ends or ends % 1 ~= 0 or ends >= 2 ^ 53 then
-- RARE
    w, f, left, foreign = unusual(value, form, q, period)
  elseif ends > now then
    w = ends - now
  end
end
u, v = w + dw, f + df
if v >= q then u, v = u + 1, v - q end
admits, t, a, b, c = u < W or (u == W and v <= F), now, w, f, left
--- retry
retry = now + a + dw - W + math.ceil((b + df - F) / q)
if a >= 2 ^ 60 then
  retry = now + c
elseif c > 0 then
  retry = now + math.ceil((retry - now) * (c / a) * (1 + 2 ^ -50)) -- it drains at the rate that is stored
end
--- charge
text, lasts = form .. string.format(whole, now + u), u + 1
if v > 0 then text = text .. '+' .. v end
--- length

-- cost returns the debt that some units add. From 2^53 on it is not exact, and never fits.
local count = tonumber(string.match(form, ' (%d+)'))
local each, part = math.floor(period / count), (period % count) / (count / q) -- of a unit: microseconds, and beyond them parts of 1/q
local function cost(units)
  if units > 2 ^ 38 then units = 2 ^ 38 end
  local low = units % 2 ^ 16 -- the product itself may be beyond 2^53
  local parts = part * ((units - low) / 2 ^ 16)
  local over = parts % q
  local rest = over * 2 ^ 16 + part * low
  local f = rest % q
  local w = units * each + (parts - over) / q * 2 ^ 16 + (rest - f) / q
  if w > 2 ^ 53 then w = 2 ^ 53 end
  return w, f
end
--- force
if now + u >= 2 ^ 53 then u, v = 2 ^ 53 - 1 - now, 0 end -- the last instant that can be stored
--- less
if held > 0 then -- it was asked on these, too
  local dw, df = cost(held)
  u, v = u - dw, v - df
  if v < 0 then u, v = u - 1, v + q end
end
--- pace string.match(form, ' (%d+)') .. '/' .. string.format(whole, period)
--- forced
-- `drains` is the rate, if it is another than this limit's, at which all drains from now on. What is
-- charged because its hold has expired drains at the fastest rate at which it was reserved, or at
-- that of what is stored if it is faster: so it does not matter whose decision it is that finds it.
-- In other calls, where more is used than this limit could have admitted, that goes on to drain at
-- the faster rate that is stored: others were promised that.
local present, drains = PACE, nil
local stored = present
if c > 0 then
  local count, per = string.match(value, '^B1 (%d+)/?(%d*) ')
  stored = count .. '/' .. (per ~= '' and per or string.format(whole, period))
end
if expired then
  drains = a + b > 0 and fastest(pace, stored) or pace
elseif c > 0 and c < a and a > W then
  drains = stored
end
if drains and drains ~= present then
  local left = c > 0 and c or a + (b > 0 and 1 or 0)
  if stored ~= drains then left = math.min(math.ceil(left * (speed(stored) / speed(drains)) * (1 + 2 ^ -50)), 2 ^ 60) end
  u = math.min(left + math.ceil(ask / speed(drains) * (1 + 2 ^ -50)), 2 ^ 53 - 1 - now)
  if not string.find(form, '/', 1, true) then drains = string.match(drains, '%d+') end
  text, lasts = 'B1 ' .. drains .. ' ' .. string.format(whole, now + u), u + 1
end
--- needed
if a + b > 0 then till = now + (c > 0 and c or a) + 1 end
--- tail math.ceil(held / speed(pace) * (1 + 2 ^ -50)) + 1
--- refund
-- It subtracts the cost from the debt if the debt still ends at `handle` and `expiry`: nothing was
-- charged since.
if c == 0 and u + v > 0 and now + u == handle and v == expiry then
  local dw, df = cost(units)
  u, v = u - dw, v - df
  if v < 0 then u, v = u - 1, v + q end
  charges = u >= 0 and u + v > 0
  if not charges then
-- CLEAR
  end
end
