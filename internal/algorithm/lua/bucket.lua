-- token_bucket, gcra and leaky_bucket. The debt is the time until the full capacity is available again. A
-- unit takes period/count = p/q microseconds, in lowest terms. All times are pairs, of whole microseconds
-- and parts of 1/q: so a decision only adds and compares, and nothing is rounded.
-- Value: a string, FORM .. 'ends' or FORM .. 'ends+f', the instant at which the debt ends. FORM is a version and the
-- count, and the period for a limit whose key does not contain it: 'B1 count ' or 'B1 count/period '.
-- Constants: FORM, the capacity as a debt (W, F), q, the period. Cost: the debt that it adds (dw, df).
-- Observes: the debt (w, f). It is above the capacity if more was charged than fits, or after a step back of the clock. If what
-- is stored is of another rate, c is when it ends.
--- constants form, W, F, q, period
--- cost dw, df
--- rare

-- unusual returns the debt of a value with parts or of another rate, the value if it is foreign, and, of another rate, how much
-- time is left until it says that the debt ends. The units used stay used: the debt is what they take at the present rate,
-- rounded up, by no more than 4 microseconds.
local function unusual(value, form, parts, present)
  -- '+0' stands in for the f of a value without one; of a value with one it is not matched.
  local count, period, ends, f = string.match(#value <= longest and value .. '+0' or '', '^B1 (%d+)/?(%d*) (%d+)%+([^+]+)')
  count, period, ends, f = tonumber(count or 0), tonumber(period or '') or present, tonumber(ends or ''), tonumber(f or '')
  local own = string.sub(value, 1, #form) == form
  if not (f and count > 0 and period > 0 and ends < 2 ^ 53 and f >= 0 and f < (own and parts or count)) then return 0, 0, value end
  if ends < now then return 0, 0 end
  if own then return ends - now, f end
  local left, rate = ends - now + (f > 0 and 1 or 0), string.match(form, ' (%d+)') / present
  return math.min(math.ceil(left * (count / period / rate) * (1 + 2 ^ -50)), 2 ^ 53 - 1), 0, nil, left
end
--- evaluate
local w, f, left = 0, 0
if value then
  local ends = #value <= longest and string.sub(value, 1, #form) == form and tonumber(string.sub(value, #form + 1))
  if not ends or ends % 1 ~= 0 or ends >= 2 ^ 53 then
-- RARE
    w, f, foreign, left = unusual(value, form, q, period)
  elseif ends > now then
    w = ends - now
  end
end
u, v = w + dw, f + df
if v >= q then u, v = u + 1, v - q end
if f > 0 then f = math.ceil(f) end
admits, t, a, b, c = u < W or (u == W and v <= F), now, w, f, left or 0
--- retry
retry = now + a + dw - W + math.ceil((b + df - F) / q)
if c > 0 then retry = now + math.ceil((retry - now) * c / a) end -- it drains at the rate stored
--- charge
text, lasts = form .. string.format(whole, now + u), u + 1
if v > 0 then text = text .. string.format('+%.17g', v) end
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
-- A limit that could not have admitted what is used does not slow down how that drains: another was promised a faster rate.
if c < a and c > 0 and a > W then
  local stored, count, per = string.match(value, '^(B1 (%d+)/?(%d*) )')
  u = math.min(c + math.floor(ask * (tonumber(per) or period) / count) + 1, 2 ^ 53 - 1 - now)
  text, lasts = stored .. string.format(whole, now + u), u + 1
end
--- needed
if a + b > 0 then till = now + (c > 0 and c or a) + 1 end
--- tail cost(held) + 1
--- refund
-- It subtracts the cost from the debt if the debt still ends at `handle` and `expiry`: nothing was charged since.
if c == 0 and u + v > 0 and now + u + math.floor(b / q) == handle and b % q == expiry then
  local dw, df = cost(units)
  u, v = u - dw, v - df
  if v < 0 then u, v = u - 1, v + q end
  charges = u >= 0 and u + v > 0
  if not charges then
-- CLEAR
  end
end
