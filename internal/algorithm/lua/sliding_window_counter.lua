-- sliding_window_counter.
-- Value: a string, FORM .. 'opened current before': the units used in the aligned window that was charged first at
-- `opened`, in microseconds, and in the one before it. FORM is a version, and the period for a limit whose key does not
-- contain it: 'C1 ' or 'C1 period '.
-- Constants: limit, period, FORM. Cost: the units.
-- Observes: current, before, opened, of the window in which t is.

-- find returns t, the instant of the decision; of the window in which t is, the units in it, those in the one
-- before, and when it was opened, which is t for a new one; the digits of that if it is stored; the value if it is
-- foreign; and the start of the window.
local function find(key, c)
  local period, form, t = ARGV[c + 1], ARGV[c + 2], now
  local opened, current, before, digits
  local length = period
  local value, foreign = redis.pcall('GET', key), nil
  if value and value.err then
    foreign = mistyped(value.err)
    value = nil
  end
  if value then
    if #value <= longest and string.sub(value, 1, #form) == form then
      digits, current, before = string.match(value, '^([1-9]%d*) (%d+) (%d+)$', #form + 1)
      opened, current, before = tonumber(digits or ''), tonumber(current), tonumber(before)
    else -- of another period: nothing is used, but t is no earlier than the window
      length, opened = string.match(#value <= longest and value or '', '^C1 (%d+) (%d+) %d+ %d+$')
      length, opened, current, before = tonumber(length or 0), tonumber(opened or ''), 0, 0
    end
    if not (opened and opened <= latest and length >= 1000 and length <= ahead and current <= 2 ^ 30 and before <= 2 ^ 30) then
      opened, foreign = nil, value
    elseif opened > now then
      t = math.max(now, opened - opened % length)
    end
    if not digits then opened = nil end
  end
  local start = t - t % period
  if opened and opened >= start then return t, current, before, opened, digits, nil, start end
  if opened and opened >= start - period then return t, 0, current, t, nil, nil, start end
  return t, 0, 0, t, nil, foreign, start
end

-- save writes `digits`, the instant as it was read, or else formats it: `..` keeps only 14 digits of a number.
local function save(key, c, opened, current, before, digits, start)
  local value = ARGV[c + 2] .. (digits or string.format('%.0f', opened)) .. ' ' .. current .. ' ' .. before
  local expires = start + ARGV[c + 1] * (current > 0 and 2 or 1)
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
  local t, current, before, opened, digits, foreign, start = find(key, c)
  local period, free = ARGV[c + 1], ARGV[c] - current - ARGV[n]
  local admits = free >= before or (free >= 0 and not exceeds(before, period - t + start, free, period))
  return admits, t, current, before, opened, digits, start, foreign
end

local function charge(key, c, n, _, current, before, opened, digits, start)
  return save(key, c, opened, current + ARGV[n], before, digits, start)
end
