-- fixed_window.lua counts the units in windows.
--
-- Stored: a string, 'F1 used opened': the units used in a window, and the instant of the window's first charge in
-- microseconds. The window begins at that instant, or if it is aligned, at the last multiple of the period that is
-- not after it. If the key is reset and then charged again within a window, `opened` differs, so a refund of an
-- earlier charge takes back nothing.
-- Constants: the limit, the period, and a form: 'first' for a window that begins with its first charge, or
-- 'aligned'.
-- Cost: the units.
-- Observed: a is `used`. b is `opened`, or the instant of the decision if nothing is stored for the window. c is how
-- long after b the window ends. x is `opened` as it is stored, in digits, or nil.

local function fixed_window(constants_at)
  local count, period, form = ARGV[constants_at] + 0, ARGV[constants_at + 1] + 0, ARGV[constants_at + 2]
  local limit = {}
  limit.window = period

  function limit.numbers(position)
    ARGV[position], ARGV[position + 1] = ARGV[position] + 0, ARGV[position + 1] + 0
  end

  function limit.cost(position)
    return ARGV[position] + 0, 0
  end

  function limit.more(n, _, units)
    return n + units, 0
  end

  function limit.evaluate(value, now, n, _)
    local instant, used, opened, digits, wrong = now, 0, now, nil, nil
    if value then
      used, digits = string.match(#value <= longest and value or '', '^F1 (%d+) ([1-9]%d*)$')
      used, opened = tonumber(used), tonumber(digits or 0)
      if used and used <= 2 ^ 30 and opened <= latest then
        local begins = form == 'aligned' and opened - opened % period or opened
        if begins > now then instant = begins end -- the clock has stepped back
        if instant >= begins + period then used, opened, digits = 0, instant, nil end
      else
        used, opened, digits, wrong = 0, now, nil, value
      end
    end
    local length = form == 'aligned' and period - opened % period or period
    return used + n <= count, instant, used, opened, length, wrong, digits
  end

  function limit.when(_, _, _, _, b, c)
    return b + c
  end

  function limit.charge(now, n, _, _, a, b, c, x)
    return string.format('F1 %d %s', a + n, x or string.format(whole, b)), b + c - now -- x has the digits as they were read
  end

  function limit.bound(units, a)
    return math.min(units, 2 ^ 30 - a), 0 -- the sum is at most 2^30, which is more than any limit
  end

  function limit.needed(_, a, b, c)
    return a > 0 and b + c or nil
  end

  function limit.tail()
    return period
  end

  -- refund subtracts the units from the window that was opened at `handle`, if that is the current window. If no
  -- units are left in it, the value is removed.
  function limit.refund(units, handle, _, _, a, b)
    return b == handle and a > units, b == handle and a <= units, -units, 0
  end

  return limit
end

return fixed_window
