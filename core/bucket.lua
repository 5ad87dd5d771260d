-- What the bucket algorithms share. Their state is a debt: the time until the bucket is as if never
-- used, w whole microseconds and f parts of 1/q more, where one unit takes T/L = p/q microseconds
-- in lowest terms. So a decision only adds and compares, and nothing is ever rounded.
-- Arguments: cost w, cost f, capacity w, capacity f, q, L, T, and what is stored of T: ' T' for a
-- limit whose key does not tell it, '' for others.

local bucket = { args = 8 }

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

local function lowest(L, T)
  local a, b = T, L
  while b > 0 do
    local rest = a % b
    a = b
    b = rest
  end
  return T / a, L / a
end

-- rescale keeps the units used when the rate changes from l/t to L/T. What the new parts of 1/Q
-- cannot hold is rounded up to a binary fraction of them: few enough bits that sums stay exact.
local function rescale(w, f, l, t, L, T)
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

-- at returns the debt at an instant, given the one at which it ends (whole microseconds and f) and
-- the rate l/t at which it was stored; t is 0 where the key tells it.
function bucket.at(key, now, ends, f, l, t, a)
  local w, L, T = ends - now, tonumber(ARGV[a + 5]), tonumber(ARGV[a + 6])
  if t == 0 then t = T end
  local same = l == L and t == T
  if not (f >= 0 and l > 0 and f < (same and tonumber(ARGV[a + 4]) or l)) then
    discard(key)
    return 0, 0
  end
  if w < 0 then return 0, 0 end
  if same then return w, f end
  return rescale(w, f, l, t, L, T)
end

-- form returns what is stored of a debt after its instants.
function bucket.form(f, a)
  return string.format(' %.17g ', f) .. ARGV[a + 5] .. ARGV[a + 7]
end

-- plus returns the debt with the cost on top.
function bucket.plus(a, w, f)
  local q = tonumber(ARGV[a + 4])
  w, f = w + ARGV[a], f + ARGV[a + 1]
  if f >= q then return w + 1, f - q end
  return w, f
end

-- minus returns the debt without the cost, but not below nothing.
function bucket.minus(a, w, f)
  w, f = w - ARGV[a], f - ARGV[a + 1]
  if f < 0 then w, f = w - 1, f + ARGV[a + 4] end
  if w < 0 then return 0, 0 end
  return w, f
end

-- admits tells whether the cost still fits, and returns the debt clipped to the capacity.
function bucket.admits(a, w, f)
  local W, F = tonumber(ARGV[a + 2]), tonumber(ARGV[a + 3])
  if w > W or (w == W and f > F) then w, f = W, F end
  local after, part = bucket.plus(a, w, f)
  return after < W or (after == W and part <= F), w, f
end
