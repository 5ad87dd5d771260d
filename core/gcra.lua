-- gcra and leaky_bucket: KEYS[i] is a string, 'G1 L tat'; see bucket.lua. At tat (the theoretical
-- arrival time), in microseconds, and f/q the debt is paid.
-- Reads (t, w, f): the debt at t, clipped to the capacity.

-- read returns the debt as it stands where it is asked about no cost.
local function read(key, now, a, n)
  local value, FORM = redis.pcall('GET', key), ARGV[a]
  local W, F, q = ARGV[a + 1], 0, 1
  if type(W) == 'string' then W, F, q = tonumber(W), ARGV[a + 3], ARGV[a + 4] end
  local t, w, f = now, 0, 0
  if value then
    local tat
    if not value.err and string.sub(value, 1, #FORM) == FORM then
      tat = tonumber(string.sub(value, #FORM + 1))
      if not tat then
        tat, f = string.match(value, '^(%d+)%+([^+]+)$', #FORM + 1)
        tat, f = tonumber(tat or ''), tonumber(f or '') or -1
      end
    end
    if not tat or tat % 1 ~= 0 or tat >= 2 ^ 53 or f < 0 or f >= q then
      t, w, f = restate(key, value, now, a)
    elseif tat >= now then
      w = tat - now
    else
      f = 0
    end
  end
  if not n then return t, w, f end
  if w > W or (w == W and f > F) then w, f = W, F end
  local x, y = ARGV[n], 0
  if q > 1 then x, y = string.match(x, '(%d+) (%d+)') end
  x, y = w + x, f + y
  if y >= q then x, y = x + 1, y - q end
  return x < W or (x == W and y <= F), t, w, f, 0, x, y
end

local function charge(key, a, _, t, _, _, _, w, f)
  local value = string.format('%s%d', ARGV[a], t + w)
  if #value < #ARGV[a] + 16 then value = string.format('%s%.0f', ARGV[a], t + w) end -- %d is of 32 bits somewhere
  if f > 0 then value, w = value .. string.format('+%.17g', f), w + 1 end
  return redis.pcall('SET', key, value, 'PXAT', math.ceil((t + w) / 1000)).err
end

-- refund
local function refund(key, now, a, n) return settle(read, charge, key, now, a, n) end
