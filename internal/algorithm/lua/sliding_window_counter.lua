-- sliding_window_counter.
-- Value: a string, FORM .. 'start current before': the units used in the aligned window that began at `start`,
-- in microseconds, and in the one before it. FORM is a version, and the period for a limit whose key does not
-- contain it: 'C1 ' or 'C1 period '.
-- Constants: limit, period, FORM. Cost: the units.
-- Observes: current, before, start, of the window in which t is.

-- find returns t, the instant of the decision; of the window in which t is, the units in it, those in the one
-- before and its start; the digits of the start if it is the stored one; and the value if it is foreign.
local function find(key, c)
  local period, form, t = ARGV[c + 1], ARGV[c + 2], now
  local start, current, before, digits
  local value, foreign = redis.pcall('GET', key), nil
  if value and value.err then
    foreign = mistyped(value.err)
    value = nil
  end
  if value then
    if string.sub(value, 1, #form) == form then
      digits, current, before = string.match(value, '^(%d+) (%d+) (%d+)$', #form + 1)
      start, current, before = tonumber(digits or ''), tonumber(current), tonumber(before)
    else -- of another period: nothing is used, but t is no earlier than the start
      start = string.match(value, '^C1 %d+ (%d+) %d+ %d+$')
      start, current, before = tonumber(start or ''), 0, 0
    end
    if start and start < 2 ^ 53 and current + before <= 2 ^ 31 then
      if start > now then t = start end
    else
      start, foreign = nil, value
    end
  end
  local window = t - t % period
  if start == window then return t, current, before, window, digits end
  if start == window - period then return t, 0, current, window end
  return t, 0, 0, window, nil, foreign
end

-- save writes `digits`, the start as it was read, or else formats it: `..` keeps only 14 digits of a number.
local function save(key, c, start, current, before, expires, digits)
  local value = ARGV[c + 2] .. (digits or string.format('%.0f', start)) .. ' ' .. current .. ' ' .. before
  return redis.pcall('SET', key, value, 'PX', math.ceil((expires - now) / 1000) + grace).err
end

-- exceeds returns whether before * left > free * period, that is, whether the window before weighs more than
-- is free. The products may be beyond 2^53: each is compared in two parts, so nothing is rounded.
local function exceeds(before, left, free, period)
  local low, rest = before * (left % 2 ^ 23), free * (period % 2 ^ 23)
  local weight = before * math.floor(left / 2 ^ 23) + math.floor(low / 2 ^ 23)
  local room = free * math.floor(period / 2 ^ 23) + math.floor(rest / 2 ^ 23)
  return weight > room or (weight == room and low % 2 ^ 23 > rest % 2 ^ 23)
end

local function evaluate(key, c, n)
  local t, current, before, window, digits, foreign = find(key, c)
  local period, free = ARGV[c + 1], ARGV[c] - current - ARGV[n]
  local admits = free >= before or (free >= 0 and not exceeds(before, period - t + window, free, period))
  return admits, t, current, before, window, digits, nil, foreign
end

local function charge(key, c, n, _, current, before, window, digits)
  return save(key, c, window, current + ARGV[n], before, window + 2 * ARGV[c + 1], digits)
end
