-- What the bucket algorithms share. Their state is a debt: the time until the bucket is as if never
-- used, w whole microseconds and f parts of 1/q more, where one unit takes T/L = p/q microseconds
-- in lowest terms. So a decision only adds and compares, and nothing is ever rounded.
-- Stored is FORM and the instants, and where f is not 0 '+f'. FORM is a version and L, and T for a
-- limit whose key does not tell it: 'T1 L ' or 'T1 L/T '.
-- Arguments: FORM, the capacity's w and T, and where q is not 1 the capacity's f and q; w is then left
-- a string, which tells. A cost is 'w', or then 'w f'.

-- restate reads what is stored with an f or at another rate. Returns the instant at which it stands, now
-- or `last` if that is later, and the debt then: none for what is not understood.
local function restate(key, value, now, a)
  -- rescale keeps the units used when the rate changes from l/t to L/T. What the new parts of 1/Q
  -- cannot hold is rounded up to a binary fraction of them: few enough bits that sums stay exact.
  local function rescale(w, f, l, t, L, T)
    -- muldiv returns x * y / z, whole and remainder, without the product, which may be beyond 2^53.
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

    local function lowest(count, period)
      local a, b = period, count
      while b > 0 do
        local rest = a % b
        a = b
        b = rest
      end
      return period / a, count / a
    end

    local p, q = lowest(l, t)
    local P, Q = lowest(L, T)
    local units, rest = muldiv(w, q, p)
    rest = rest + f
    units = units + math.floor(rest / p)
    rest = rest % p
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
    return math.min(W, 2 ^ 52), F
  end

  if value.err then
    discard(key, value.err)
    return now, 0, 0
  end
  local L, T = string.match(ARGV[a], ' (%d+)'), tonumber(ARGV[a + 2])
  local q = type(ARGV[a + 1]) == 'string' and ARGV[a + 4] or 1
  local l, t, rest = string.match(value, '^' .. string.sub(ARGV[a], 1, 2) .. ' (%d+)/?(%d*) (.*)$')
  local last, ends, f = string.match((rest or '') .. '+0', '^(%d- ?)(%d+)%+([^+]+)')
  L, l, t = tonumber(L), tonumber(l or 0), tonumber(t or 0) or T
  last, ends, f = tonumber(last or 0) or 0, tonumber(ends or 0), tonumber(f or 'none')
  local same = l == L and t == T
  if not (f and l > 0 and t > 0 and last <= ends and ends < 2 ^ 53 and f >= 0 and f < (same and q or l)) then
    discard(key)
    return now, 0, 0
  end
  if last > now then now = last end
  if ends < now then return now, 0, 0 end
  if same then return now, ends - now, f end
  return now, rescale(ends - now, f, l, t, L, T)
end

-- refund: settle takes the cost off the debt, but no more than there is. It is given what the algorithm
-- reads and charges with.
local function settle(read, charge, key, now, a, n)
  local t, w, f = read(key, now, a)
  if w + f == 0 then return end
  local q, x, y = 1, ARGV[n], 0
  if type(ARGV[a + 1]) == 'string' then
    q = ARGV[a + 4]
    x, y = string.match(x, '(%d+) (%d+)')
  end
  w, f = w - x, f - y
  if f < 0 then w, f = w - 1, f + q end
  if w < 0 or w + f == 0 then redis.call('DEL', key) else return charge(key, a, n, t, nil, nil, nil, w, f) end
end
