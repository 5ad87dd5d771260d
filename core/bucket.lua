-- What the bucket algorithms share. Their state is a debt: the time until the bucket is as if never
-- used, w whole microseconds and f parts of 1/q more, where one unit takes T/L = p/q microseconds
-- in lowest terms. So a decision only adds and compares, and nothing is ever rounded.
-- Arguments: cost w, cost f, capacity w, capacity f, p, q.

local bucket = { args = 6 }

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

-- rescale keeps the units used when the rate changes from q/p to Q/P. What the new parts of 1/Q
-- cannot hold is rounded up to a binary fraction of them: few enough bits that sums stay exact.
function bucket.rescale(w, f, p, q, P, Q)
  local units, rest = muldiv(w, q, p)
  rest = rest + f
  units, rest = units + math.floor(rest / p), rest % p
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
  W, F = W + math.floor(F / Q), F % Q + fraction
  if F >= Q then W, F = W + 1, F - Q end
  return math.min(W, 2 ^ 52), F
end

-- at returns the debt at t, given the instant it ends (whole microseconds and f) at rate q/p.
function bucket.at(key, t, ends, f, p, q, a)
  local w, P, Q = ends - t, tonumber(ARGV[a + 4]), tonumber(ARGV[a + 5])
  if not (f >= 0 and f < q and p >= 1) then
    discard(key)
    return 0, 0
  end
  if w < 0 then return 0, 0 end
  if p ~= P or q ~= Q then return bucket.rescale(w, f, p, q, P, Q) end
  return w, f
end

-- plus returns the debt with the cost on top.
function bucket.plus(w, f, a)
  local q = tonumber(ARGV[a + 5])
  w, f = w + ARGV[a], f + ARGV[a + 1]
  if f >= q then return w + 1, f - q end
  return w, f
end

-- admits tells whether the cost still fits, and returns the debt clipped to the capacity.
function bucket.admits(w, f, a)
  local W, F = tonumber(ARGV[a + 2]), tonumber(ARGV[a + 3])
  if w > W or (w == W and f > F) then w, f = W, F end
  local after, part = bucket.plus(w, f, a)
  return after < W or (after == W and part <= F), w, f
end
