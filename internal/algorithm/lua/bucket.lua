-- token_bucket, gcra and leaky_bucket. The debt is the time until the full capacity is available again. A
-- unit takes period/count = p/q microseconds, in lowest terms. All times are pairs, of whole microseconds
-- and parts of 1/q: so a decision only adds and compares, and nothing is rounded.
-- Value: a string, FORM .. 'ends' or FORM .. 'ends+f', the instant at which the debt ends. FORM is a version and the
-- count, and the period for a limit whose key does not contain it: 'B1 count ' or 'B1 count/period '.
-- Constants: FORM, the capacity as a debt (W, F), q, the period. Cost: the debt that it adds (w, f).
-- Observes: the debt (w, f). It is above the capacity if more was charged than fits, or after a step back of the clock.

-- restate returns the debt of a value that was stored at another rate (p/q) at the present one (P/Q), or a
-- debt of 0 and the value if it is foreign. The units used stay used, up to the capacity: what parts of 1/Q cannot hold is
-- rounded up to a binary fraction of a part, with so few bits that sums stay exact.
local function restate(value, c)
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

  -- '+0' stands in for the f of a value without one; of a value with one it is not matched.
  local count, period, ends, f = string.match(value .. '+0', '^B1 (%d+)/?(%d*) (%d+)%+([^+]+)')
  count, period, ends, f = tonumber(count or 0), tonumber(period or '') or ARGV[c + 4], tonumber(ends or ''), tonumber(f or '')
  if not (f and count > 0 and period > 0 and ends < 2 ^ 53 and f >= 0 and f < count) then return 0, 0, value end
  if ends < now then return 0, 0 end
  local p, q = lowest(count, period)
  local P, Q = lowest(tonumber(string.match(ARGV[c], ' (%d+)')), ARGV[c + 4])
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
  if W > ARGV[c + 1] or (W == ARGV[c + 1] and F > ARGV[c + 2]) then return ARGV[c + 1], ARGV[c + 2] end
  return W, F
end
