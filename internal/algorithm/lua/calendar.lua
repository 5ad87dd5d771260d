-- calendar.lua counts the units in the windows of a calendar. In all other respects it is a fixed window.
--
-- Stored: a string, 'W1 used opened': the units used in a window, and the instant of the window's first charge in
-- microseconds. The units count if `opened` is not before the start of the current window, which the sender of
-- the script knows. The window itself is not stored. Otherwise, senders with different time zone data would
-- reset each other's counts again and again.
-- Constants: the limit; the period, which is the length of the longest window; and three windows. The window that
-- contains the sender's time lasts from `from` to `to`. The window before begins at `previous`, and the window
-- after ends at `after`.
-- Cost: the units.
-- Observed: a is `used`. b is `opened`, or the instant of the decision if nothing is stored for the window. c is how
-- long after b the window ends. c is 0 or negative if `opened` is after the three windows, because the clock has
-- stepped back. x is `opened` as it is stored, in digits, or nil.

local function calendar(constants_at)
  local count, period, previous = ARGV[constants_at] + 0, ARGV[constants_at + 1] + 0, ARGV[constants_at + 2] + 0
  local from, to, after = ARGV[constants_at + 3] + 0, ARGV[constants_at + 4] + 0, ARGV[constants_at + 5] + 0
  local limit = fixed_window(constants_at)
  limit.window = period

  function limit.numbers(position)
    for i = position, position + 5 do ARGV[i] = ARGV[i] + 0 end
  end

  -- check raises an error, which the sender gets, if the sender's clock and the clock of Redis differ so much that
  -- the time of Redis is in none of the three windows.
  function limit.check(now)
    if now < previous or now >= after then error('the clock of redis or of this process is wrong by more than a window of the calendar', 0) end
  end

  function limit.evaluate(value, now, n, _)
    local instant, used, opened, digits, wrong = now, 0, now, nil, nil
    if value then
      used, digits = string.match(#value <= longest and value or '', '^W1 (%d+) ([1-9]%d*)$')
      used, opened = tonumber(used), tonumber(digits or 0)
      if used and used <= 2 ^ 30 and opened <= latest then
        -- If the clock has stepped back, the window in which the units were charged is still the current one. If
        -- that window is later than the three windows, the last of the three is the current one instead.
        if opened >= to then instant = math.max(now, to) elseif opened >= from then instant = math.max(now, from) end
      else
        used, opened, digits, wrong = 0, now, nil, value
      end
    end
    local start, stop = from, to
    if instant >= to then start, stop = to, after elseif instant < from then start, stop = previous, from end
    if instant < previous then start, stop = instant, previous end -- a hold that expired long ago is charged at `instant`
    if opened < start then used, opened, digits = 0, instant, nil end
    return used + n <= count, instant, used, opened, stop - opened, wrong, digits
  end

  function limit.charge(now, n, _, _, a, b, c, x)
    return string.format('W1 %d %s', a + n, x or string.format(whole, b)), b + c - now -- x has the digits as they were read
  end

  return limit
end

return calendar
