-- fixed_window.
-- Value: a string, 'F1 used start' or 'F1 used start length': the units used in the window that was opened at
-- `start` and lasts `length`, both in microseconds. Only a limit whose key does not contain the period
-- stores the length. An aligned window begins at the multiple of its length before `start`: that is when it was
-- charged first, which tells it from the same window before a reset.
-- Constants: limit, period, and a kind: '' for a window that begins with its first request, 'aligned' for
-- an aligned one; 'named' or 'aligned named' if the length is stored. Cost: the units.
-- Observes: used, start, length.

local function evaluate(key, c, n)
  local limit, period, kind, t = ARGV[c], ARGV[c + 1], ARGV[c + 2], now
  local used, start, length, digits = 0, now, period, nil
  local value, foreign = redis.pcall('GET', key), nil
  if value and value.err then
    foreign = mistyped(value.err)
    value = nil
  end
  if value then
    used, digits, length = string.match(#value <= longest and value or '', '^F1 (%d+) ([1-9]%d*) ?(%d*)$')
    used, start, length = tonumber(used), tonumber(digits or 0), tonumber(length or 0) or period
    if used and used <= 2 ^ 30 and start <= latest and length >= 1000 and length <= ahead then
      local begins = start
      if kind == 'aligned' or kind == 'aligned named' then begins = start - start % length end
      if begins > now then t = begins end
    else
      used, start, length, digits, foreign = 0, now, period, nil, value
    end
  end
  if kind == 'aligned' or kind == 'aligned named' then
    if start - start % period ~= t - t % period or length ~= period then used, start, length, digits = 0, t, period, nil end
  elseif t >= start + length then
    used, start, length, digits = 0, t, period, nil
  end
  return used + ARGV[n] <= limit, t, used, start, length, digits, nil, foreign
end

-- save writes `digits`, the start as it was read, or else formats it: `..` keeps only 14 digits of a number.
local function save(key, kind, used, start, length, digits)
  local value = 'F1 ' .. used .. ' ' .. (digits or string.format('%.0f', start))
  if kind == 'named' or kind == 'aligned named' then value = value .. ' ' .. length end
  if kind == 'aligned' or kind == 'aligned named' then start = start - start % length end
  return redis.pcall('SET', key, value, 'PX', math.ceil((start + length - now) / 1000) + grace).err
end

local function charge(key, c, n, _, used, start, length, digits)
  return save(key, ARGV[c + 2], used + ARGV[n], start, length, digits)
end
