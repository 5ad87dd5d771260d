-- sliding_window_counter: KEYS[i] is a string, 'C1 start count before' or 'C1 start count before
-- period': the units used in the aligned window that began at `start` and in the one before it. Times
-- are in microseconds.
-- Reads (t, count, before, start), rolled on to the window of t. Arguments: n, limit, period, and
-- what is stored of the period: ' period' for a limit whose key does not tell it, '' for others.

local sliding_window_counter = { args = 4 }

local function save(key, start, count, before, expires, a)
  store(key, string.format('C1 %.0f %.0f %.0f', start, count, before) .. ARGV[a + 3], expires)
end

-- load returns t and the units as they stand in the window of t.
local function load(key, now, period)
  local start, count, before, length = parse(key, '^C1 (%d+) (%d+) (%d+) ?(%d*)$')
  if start and count + before > 2 ^ 31 then start = discard(key) end
  local t = math.max(now, start or 0)
  local window = t - t % period
  if not start or (length > 0 and length ~= period) or window > start + period then
    return t, 0, 0, window
  elseif window > start then
    return t, 0, count, window
  end
  return t, count, before, window
end

-- product returns x * y for x < 2^30 and y < 2^45, which may be beyond 2^53, as two parts.
local function product(x, y)
  local low = x * (y % 2 ^ 23)
  return x * math.floor(y / 2 ^ 23) + math.floor(low / 2 ^ 23), low % 2 ^ 23
end

-- fits tells whether before * (period - elapsed) <= free * period, exactly.
local function fits(before, elapsed, free, period)
  if free < 0 then return false end
  if before <= free then return true end
  local weight, part = product(before, period - elapsed)
  local room, rest = product(free, period)
  return weight < room or (weight == room and part <= rest)
end

function sliding_window_counter.read(key, now, a)
  local n, limit, period = tonumber(ARGV[a]), tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2])
  local t, count, before, window = load(key, now, period)
  return fits(before, t - window, limit - count - n, period), t, count, before, window
end

function sliding_window_counter.charge(key, a, _, count, before, window)
  local period = tonumber(ARGV[a + 2])
  save(key, window, count + ARGV[a], before, window + 2 * period, a)
end

-- refund gives back to the window that began at `mark`, while it is the current one or the one before.
function sliding_window_counter.refund(key, now, a, mark)
  local n, period = tonumber(ARGV[a]), tonumber(ARGV[a + 2])
  local _, count, before, window = load(key, now, period)
  if window == mark and count > 0 then
    count = math.max(0, count - n)
  elseif window == mark + period and before > 0 then
    before = math.max(0, before - n)
  else
    return
  end
  if count + before == 0 then
    redis.call('DEL', key)
  else
    save(key, window, count, before, window + period * (count > 0 and 2 or 1), a)
  end
end
