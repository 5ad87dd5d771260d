-- token_bucket: KEYS[i] is a string, 'T1 L last ends'; see bucket.lua. The bucket was last taken from
-- at `last` (the newest instant seen), and is full again at `ends` and f/q; both in microseconds.
-- Reads (t, w, f): the debt at t, clipped to the capacity: the time the missing tokens take to refill.

-- read returns the debt as it stands where it is asked about no cost.
local function read(key, now, a, n)
  local value, FORM = redis.pcall('GET', key), ARGV[a]
  local W, F, q = ARGV[a + 1], 0, 1
  if type(W) == 'string' then W, F, q = tonumber(W), ARGV[a + 3], ARGV[a + 4] end
  local t, w, f = now, 0, 0
  if value then
    local last, ends
    if not value.err and string.sub(value, 1, #FORM) == FORM then
      last, ends, f = string.match(value, '^(%d+) (%d+)%+?([^+]*)$', #FORM + 1)
      last, ends, f = tonumber(last or ''), tonumber(ends or ''), f == '' and 0 or tonumber(f or '') or -1
    end
    if not ends or last > ends or ends >= 2 ^ 53 or f < 0 or f >= q then
      t, w, f = restate(key, value, now, a)
    else
      if last > now then t = last end
      if ends >= t then w = ends - t else f = 0 end
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
  local value = string.format('%s%d %d', ARGV[a], t, t + w)
  if #value < #ARGV[a] + 33 then value = string.format('%s%.0f %.0f', ARGV[a], t, t + w) end -- %d is of 32 bits somewhere
  if f > 0 then value, w = value .. string.format('+%.17g', f), w + 1 end
  return redis.pcall('SET', key, value, 'PXAT', math.ceil((t + w) / 1000)).err
end

-- refund
local function refund(key, now, a, n) return settle(read, charge, key, now, a, n) end
