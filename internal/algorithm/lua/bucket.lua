-- token_bucket, gcra and leaky_bucket. The debt is the time until the full capacity is available
-- again. A unit takes period/count = p/q microseconds, in lowest terms. All times are pairs, of
-- whole microseconds and parts of 1/q: so a decision only adds and compares, and nothing is
-- rounded.
-- Value: a string, FORM .. 'ends' or FORM .. 'ends+f', the instant at which the debt ends. FORM is
-- a version and the count, and the period for a limit whose key does not contain it: 'B1 count ' or
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
-- the other rate, or 0; and the value if it is foreign. `parts` is q, `present` this limit's
-- period. Used units stay used: the debt is the time that they take at the present rate, rounded
-- up.
local function unusual(value, form, parts, present)
  local text = #value <= longest and value .. '+0' or '' -- it stands in for the f of a value without one
  local own, count, period, ends, f = string.sub(value, 1, #form) == form, parts, present, nil, nil
  if own then
    ends, f = string.match(text, '^(%d+)%+([^+]+)%+?0?$', #form + 1)
  else
    count, period, ends, f = string.match(text, '^B1 (%d+)/?(%d*) (%d+)%+([^+]+)%+?0?$')
    count, period = tonumber(count or 0), tonumber(period or '') or present
  end
  ends, f = tonumber(ends or ''), tonumber(f or '')
  if not (f and count > 0 and period > 0 and ends < 2 ^ 53 and f >= 0 and f < count) then return 0, 0, 0, value end
  if ends < now then return 0, 0, 0 end
  if not own then
    local left, rate = ends - now + (f > 0 and 1 or 0), string.match(form, ' (%d+)') / present
    return math.min(math.ceil(left * (count / period / rate) * (1 + 2 ^ -50)), 2 ^ 53 - 1), 0, left
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
if c > 0 then retry = now + math.ceil((retry - now) * (c / a) * (1 + 2 ^ -50)) end -- it drains at the rate that is stored
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
--- forced
-- Where more is used than this limit could have admitted, it does not slow down how that drains:
-- others were promised that.
if c > 0 and c < a and a > W then
  local stored, count, per = string.match(value, '^(B1 (%d+)/?(%d*) )')
  u = math.min(c + math.ceil(ask / (count / (tonumber(per) or period)) * (1 + 2 ^ -50)), 2 ^ 53 - 1 - now)
  text, lasts = stored .. string.format(whole, now + u), u + 1
end
--- needed
if a + b > 0 then till = now + (c > 0 and c or a) + 1 end
--- tail cost(held) + 1
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
