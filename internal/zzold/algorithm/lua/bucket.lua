-- token_bucket, gcra and leaky_bucket. The debt is the time until the full capacity is available again. A
-- unit takes period/count = p/q microseconds, in lowest terms. All times are pairs, of whole microseconds
-- and parts of 1/q: so a decision only adds and compares, and nothing is rounded.
-- Value: a string, FORM .. 'ends' or FORM .. 'ends+f', the instant at which the debt ends. FORM is a version and the
-- count, and the period for a limit whose key does not contain it: 'B1 count ' or 'B1 count/period '.
-- Constants: FORM, the capacity as a debt (W, F), q, the period. Cost: the debt that it adds (dw, df).
-- Observes: the debt (w, f). It is above the capacity if more was charged than fits, or after a step back of the clock.
--- constants form, W, F, q, period
--- cost dw, df
--- rare

-- unusual returns the debt of a value with parts or of another rate, and the value if it is foreign. What was stored at
-- another rate (p/q) is restated at the present one (P/Q). The units used stay used, up to the capacity: what parts of 1/Q cannot
-- hold is rounded up to a binary fraction of a part, with so few bits that sums stay exact.
local function unusual(value, form, limitW, limitF, parts, present)
  -- muldiv returns the quotient and the remainder of x * y / z. The product itself may be beyond 2^53.
  local function muldiv(x, y, z)
    local whole, part = math.floor(x / z), x % z
    local quotient, rest, bit = 0, 0, 2 ^ 50
    while bit >= 1 do
      quotient, rest = quotient * 2, rest * 2
      if rest >= z then quotient, rest = quotient + 1, rest - z end
      if y >= bit then
        y, quotient, rest = y - bit, quotient + whole, rest + part
        if rest >= z then quotient, rest = quotient + 1, rest - z end
      end
      bit = bit / 2
    end
    return quotient, rest
  end

  -- lowest returns period/count in lowest terms.
  local function lowest(count, period)
    local a, b = period, count
    while b > 0 do
      local rest = a % b
      a = b
      b = rest
    end
    return period / a, count / a
  end

  if #value > longest then return 0, 0, value end
  if string.sub(value, 1, #form) == form and string.find(value, '+', 1, true) then
    local ends, f = string.match(value, '^(%d+)%+([^+]+)$', #form + 1)
    ends, f = tonumber(ends or ''), tonumber(f or '')
    if not (f and f >= 0 and f < parts) or ends >= 2 ^ 53 then return 0, 0, value end
    if ends < now then return 0, 0 end
    return ends - now, f
  end
  -- '+0' stands in for the f of a value without one; of a value with one it is not matched.
  local count, period, ends, f = string.match(value .. '+0', '^B1 (%d+)/?(%d*) (%d+)%+([^+]+)')
  count, period, ends, f = tonumber(count or 0), tonumber(period or '') or present, tonumber(ends or ''), tonumber(f or '')
  if not (f and count > 0 and period > 0 and ends < 2 ^ 53 and f >= 0 and f < count) then return 0, 0, value end
  if ends < now then return 0, 0 end
  local p, q = lowest(count, period)
  local P, Q = lowest(tonumber(string.match(form, ' (%d+)')), present)
  -- The debt in units: whole ones, and a rest in parts of 1/p of a unit, which may have a fraction itself.
  local units, rest = muldiv(ends - now, q, p)
  rest = rest + f
  units = units + math.floor(rest / p)
  rest = rest % p
  -- The same at the present rate: the whole units, and then the rest.
  local W, F = muldiv(units, P, Q)
  local whole = math.floor(rest)
  local more, left = muldiv(whole, P, p)
  local fraction = left / p + (rest - whole) * P / p
  F = F + more + math.floor(fraction)
  fraction = fraction % 1
  if fraction > 0 then
    local _, exponent = math.frexp(Q)
    local grid = 2 ^ (50 - exponent)
    fraction = (math.floor(fraction * grid) + 1) / grid
  end
  W = W + math.floor(F / Q)
  F = F % Q + fraction
  if F >= Q then W, F = W + 1, F - Q end
  if W > limitW or (W == limitW and F > limitF) then return limitW, limitF end
  return W, F
end
--- evaluate
local w, f = 0, 0
if value then
  local ends = #value <= longest and string.sub(value, 1, #form) == form and tonumber(string.sub(value, #form + 1))
  if not ends or ends % 1 ~= 0 or ends >= 2 ^ 53 then
-- RARE
    w, f, foreign = unusual(value, form, W, F, q, period)
  elseif ends > now then
    w = ends - now
  end
end
u, v = w + dw, f + df
if v >= q then u, v = u + 1, v - q end
if f > 0 then f = math.ceil(f) end
admits, t, a, b, c = u < W or (u == W and v <= F), now, w, f, 0
--- retry
retry = now + a + dw - W + math.ceil((b + df - F) / q)
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
--- needed
-- A debt that was stored at another rate ends when it says, and not at this limit's rate.
if a + b > 0 then till = (string.sub(value, 1, #form) == form and now + a or tonumber(string.match(value, '^B1 %S+ (%d+)'))) + 1 end
--- tail cost(held) + 1
--- refund
-- It subtracts the cost from the debt if the debt still ends at `handle` and `expiry`: nothing was charged since.
if u + v > 0 and now + u + math.floor(b / q) == handle and b % q == expiry then
  local dw, df = cost(units)
  u, v = u - dw, v - df
  if v < 0 then u, v = u - 1, v + q end
  charges = u >= 0 and u + v > 0
  if not charges then
-- CLEAR
  end
end
