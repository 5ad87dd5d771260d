-- fixed_window: KEYS[i] is a string, 'F1 used start' or 'F1 used start length': the units used in the
-- window that opened at `start` and lasts `length`, both in microseconds.
-- Reads (t, used, start, length). Arguments: n, limit, period, '1' if aligned, and what is stored
-- of the length: '1' for a limit whose key does not tell it, '' for others.

local fixed_window = { args = 5 }

local function load(key, a)
  local used, start, length = parse(key, '^F1 (%d+) (%d+) ?(%d*)$')
  if length == 0 then length = tonumber(ARGV[a + 2]) end
  return used, start, length
end

local function save(key, used, start, length, a)
  local form = ARGV[a + 4] == '1' and 'F1 %.0f %.0f %.0f' or 'F1 %.0f %.0f'
  store(key, string.format(form, used, start, length), start + length)
end

function fixed_window.read(key, now, a)
  local n, limit, period = tonumber(ARGV[a]), tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2])
  local aligned = ARGV[a + 3] == '1'
  local used, start, length = load(key, a)
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
  save(key, used + ARGV[a], start, length, a)
end

-- refund gives back to the window that opened at `mark`, while that is the open one.
function fixed_window.refund(key, now, a, mark)
  local used, start, length = load(key, a)
  if start ~= mark or now >= start + length then return end
  used = used - ARGV[a]
  if used < 1 then redis.call('DEL', key) else save(key, used, start, length, a) end
end
