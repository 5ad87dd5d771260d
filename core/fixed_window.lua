-- fixed_window: KEYS[i] is a string, 'F1 used start length': the units used in the window that
-- opened at `start` and lasts `length`, both in microseconds.
-- Reads (t, used, start, length). Arguments: n, limit, period, '1' if aligned.

local fixed_window = { args = 4 }

function fixed_window.read(key, now, a)
  local n, limit, period = tonumber(ARGV[a]), tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2])
  local aligned = ARGV[a + 3] == '1'
  local used, start, length = parse(key, '^F1 (%d+) (%d+) (%d+)$')
  local t = math.max(now, start or 0)
  if aligned then
    local window = t - t % period
    if start ~= window or length ~= period then used, start, length = 0, window, period end
  elseif not start or t >= start + length then
    used, start, length = 0, t, period
  end
  return used + n <= limit, t, used, start, length
end

function fixed_window.charge(key, a, _, used, start, length)
  store(key, string.format('F1 %.0f %.0f %.0f', used + ARGV[a], start, length), start + length)
end
