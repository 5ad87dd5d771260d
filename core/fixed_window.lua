-- fixed_window: KEYS[i] is a string, 'F1 used start' or 'F1 used start length': the units used in the
-- window that opened at `start` and lasts `length`, both in microseconds.
-- Reads (t, used, start, length). Arguments: limit, period, and a kind: '' for a window that opens with
-- its first request, 'aligned' for an aligned one; 'named' for a limit whose key does not tell the
-- length, so that it is stored, and 'aligned named'. A cost is a number.

local function read(key, now, a, n)
  local limit, period, kind, t = ARGV[a], ARGV[a + 1], ARGV[a + 2], now
  local used, start, length, digits = 0, now, period, nil
  local value = redis.pcall('GET', key)
  if value and value.err then value = discard(key, value.err) end
  if value then
    used, digits, length = string.match(value, '^F1 (%d+) (%d+) ?(%d*)$')
    used, start, length = tonumber(used), tonumber(digits or 0), tonumber(length or 0) or period
    if used and used + start + length < 2 ^ 53 then
      if start > now then t = start end
    else
      discard(key)
      used, start, length, digits = 0, now, period, nil
    end
  end
  if kind == 'aligned' or kind == 'aligned named' then
    local window = t - t % period
    if start ~= window or length ~= period then used, start, length, digits = 0, window, period, nil end
  elseif t >= start + length then
    used, start, length, digits = 0, t, period, nil
  end
  return used + ARGV[n] <= limit, t, used, start, length, digits
end

-- save writes `start` as it was read, or else formats it. Numbers that are joined keep 14 digits.
local function save(key, kind, used, start, length, digits)
  local value = 'F1 ' .. used .. ' ' .. (digits or string.format('%.0f', start))
  if kind == 'named' or kind == 'aligned named' then value = value .. ' ' .. length end
  return redis.pcall('SET', key, value, 'PXAT', math.ceil((start + length) / 1000)).err
end

local function charge(key, a, n, _, used, start, length, digits)
  return save(key, ARGV[a + 2], used + ARGV[n], start, length, digits)
end

-- refund gives back to the window that opened at `mark`, while that is the open one.
local function refund(key, now, a, n, mark)
  local _, _, used, start, length, digits = read(key, now, a, n)
  if start ~= mark then return end
  used = used - ARGV[n]
  if used < 1 then redis.call('DEL', key) else return save(key, ARGV[a + 2], used, start, length, digits) end
end
