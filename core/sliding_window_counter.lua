-- sliding_window_counter: KEYS[i] is a string, 'FORM start count before': the units used in the aligned
-- window that began at `start`, in microseconds, and in the one before it. FORM is a version, and the
-- period for a limit whose key does not tell it: 'C1 ' or 'C1 period '.
-- Reads (t, count, before, start), rolled on to the window of t. Arguments: limit, period, FORM. A cost
-- is a number.

-- load returns t and the units as they stand in the window of t, with its start as it was read.
local function load(key, now, a)
  local period, FORM, t = ARGV[a + 1], ARGV[a + 2], now
  local start, count, before, digits
  local value = redis.pcall('GET', key)
  if value and value.err then value = discard(key, value.err) end
  if value then
    if string.sub(value, 1, #FORM) == FORM then
      digits, count, before = string.match(value, '^(%d+) (%d+) (%d+)$', #FORM + 1)
      start, count, before = tonumber(digits or ''), tonumber(count), tonumber(before)
    else -- of another period: it starts afresh, but not with an earlier clock
      start = string.match(value, '^C1 %d+ (%d+) %d+ %d+$')
      start, count, before = tonumber(start or ''), 0, 0
    end
    if start and start < 2 ^ 53 and count + before <= 2 ^ 31 then
      if start > now then t = start end
    else
      start = discard(key)
    end
  end
  local window = t - t % period
  if start == window then return t, count, before, window, digits end
  if start == window - period then return t, 0, count, window end
  return t, 0, 0, window
end

-- save writes `start` as it was read, or else formats it. Numbers that are joined keep 14 digits.
local function save(key, a, start, count, before, expires, digits)
  local value = ARGV[a + 2] .. (digits or string.format('%.0f', start)) .. ' ' .. count .. ' ' .. before
  return redis.pcall('SET', key, value, 'PXAT', math.ceil(expires / 1000)).err
end

-- exceeds tells whether before * left > free * period, exactly: the products may be beyond 2^53, and
-- are compared in two parts.
local function exceeds(before, left, free, period)
  local low, rest = before * (left % 2 ^ 23), free * (period % 2 ^ 23)
  local weight = before * math.floor(left / 2 ^ 23) + math.floor(low / 2 ^ 23)
  local room = free * math.floor(period / 2 ^ 23) + math.floor(rest / 2 ^ 23)
  return weight > room or (weight == room and low % 2 ^ 23 > rest % 2 ^ 23)
end

local function read(key, now, a, n)
  local t, count, before, window, digits = load(key, now, a)
  local period, free = ARGV[a + 1], ARGV[a] - count - ARGV[n]
  local admits = free >= before or (free >= 0 and not exceeds(before, period - t + window, free, period))
  return admits, t, count, before, window, digits
end

local function charge(key, a, n, _, count, before, window, digits)
  return save(key, a, window, count + ARGV[n], before, window + 2 * ARGV[a + 1], digits)
end

-- refund gives back to the window that began at `mark`, while it is the current one or the one before.
local function refund(key, now, a, n, mark)
  local period, _, count, before, window, digits = ARGV[a + 1], load(key, now, a)
  if window == mark and count > 0 then
    count = math.max(0, count - ARGV[n])
  elseif window == mark + period and before > 0 then
    before = math.max(0, before - ARGV[n])
  else
    return
  end
  if count + before == 0 then
    redis.call('DEL', key)
  else
    return save(key, a, window, count, before, window + period * (count > 0 and 2 or 1), digits)
  end
end
