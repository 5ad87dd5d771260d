
-- read returns the debt, and the value if it is foreign, or true for one of another type.
local function read(key, c)
  local form, value = ARGV[c], redis.pcall('GET', key)
  if not value then return 0, 0 end
  if value.err then return 0, 0, mistyped(value.err) end
  if #value > longest then return 0, 0, value end
  if string.sub(value, 1, #form) ~= form then return restate(value, c) end
  local ends, f = tonumber(string.sub(value, #form + 1)), 0
  if not ends then
    ends, f = string.match(value, '^(%d+)%+([^+]+)$', #form + 1)
    ends, f = tonumber(ends or ''), tonumber(f or '')
    if not (f and f >= 0 and f < ARGV[c + 3]) then return 0, 0, value end
  end
  if ends % 1 ~= 0 or ends >= 2 ^ 53 then return 0, 0, value end
  if ends < now then return 0, 0 end
  return ends - now, f
end

local function evaluate(key, c, n)
  local W, F, q = ARGV[c + 1], ARGV[c + 2], ARGV[c + 3]
  local w, f, foreign = read(key, c)
  local x, y = w + ARGV[n], f + ARGV[n + 1]
  if y >= q then x, y = x + 1, y - q end
  return x < W or (x == W and y <= F), now, w, f == 0 and 0 or math.ceil(f), 0, x, y, foreign
end

local function charge(key, c, _, _, _, _, _, w, f)
  local value = string.format('%s%d', ARGV[c], now + w)
  if #value < #ARGV[c] + 16 then value = string.format('%s%.0f', ARGV[c], now + w) end -- %d has 32 bits on some platforms
  if f > 0 then value = value .. string.format('+%.17g', f) end
  return redis.pcall('SET', key, value, 'PX', math.ceil((w + 1) / 1000) + grace).err
end
