-- sliding_window_counter.lua counts the units in aligned windows. The units of the window before the current one
-- are weighted by the part of that window that lies within the last period.
--
-- Stored: a string, 'C1 opened current before': the instant of a window's first charge in microseconds, the
-- units used in that window, and the units used in the window before it.
-- Constants: the limit and the period.
-- Cost: the units.
-- Observed, for the window that contains the instant of the decision: a is `current`, and b is `before`. c is `opened`,
-- or the instant of the decision if nothing is stored for the window. x is `opened` as it is stored, in digits, or
-- nil. y is the start of the window.

local function sliding_window_counter(constants_at)
  local count, period = ARGV[constants_at] + 0, ARGV[constants_at + 1] + 0
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
    local instant, current, previous, opened, digits, wrong = now, nil, nil, nil, nil, nil
    if value then
      digits, current, previous = string.match(#value <= longest and value or '', '^C1 ([1-9]%d*) (%d+) (%d+)$')
      opened, current, previous = tonumber(digits or ''), tonumber(current), tonumber(previous)
      if not (opened and opened <= latest and current <= 2 ^ 30 and previous <= 2 ^ 30) then
        digits, wrong = nil, value
      elseif opened > now then
        instant = math.max(now, opened - opened % period) -- the clock has stepped back
      end
    end
    local start = instant - instant % period
    if not digits or opened < start - period then
      current, previous, opened, digits = 0, 0, instant, nil
    elseif opened < start then
      previous = current -- not in one assignment, which gopher-lua would make in another order
      current, opened, digits = 0, instant, nil
    end
    local free = count - current - n
    local fits = free >= previous
    if not fits and free >= 0 then -- previous * left <= free * period? Both products may exceed 2^53, so they are compared in two parts
      local left = period - instant + start
      local low, rest = previous * (left % 2 ^ 23), free * (period % 2 ^ 23)
      local weight = previous * math.floor(left / 2 ^ 23) + math.floor(low / 2 ^ 23)
      local room = free * math.floor(period / 2 ^ 23) + math.floor(rest / 2 ^ 23)
      fits = weight < room or (weight == room and low % 2 ^ 23 <= rest % 2 ^ 23)
    end
    return fits, instant, current, previous, opened, wrong, digits, start
  end

  function limit.when(_, n, _, a, b, _, y)
    local weighs, room, ends = b, count - a - n, y + period
    if room < 0 then weighs, room, ends = a, count - n, ends + period end
    -- The result is the first instant at which `weighs` units count as at most `room`. The product of `room` and
    -- the period may exceed 2^53, so it is divided in two parts.
    local high = room * math.floor(period / 2 ^ 22)
    local low = high % weighs * 2 ^ 22 + room * (period % 2 ^ 22)
    return ends - math.floor(high / weighs) * 2 ^ 22 - math.floor(low / weighs)
  end

  function limit.charge(now, n, _, _, a, b, c, x, y)
    local stored = string.format('C1 %s %d %d', x or string.format(whole, c), a + n, b) -- x has the digits as they were read
    return stored, y + period * (a + n > 0 and 2 or 1) - now
  end

  function limit.bound(units, a)
    return math.min(units, 2 ^ 30 - a), 0 -- the sum is at most 2^30, which is more than any limit
  end

  function limit.needed(_, a, b, _, y)
    return a + b > 0 and y + period * (a > 0 and 2 or 1) or nil
  end

  function limit.tail()
    return 2 * period
  end

  -- refund subtracts the units from the window that was opened at `handle`, if that is the current window. If both
  -- windows are then empty, the value is removed. refund takes nothing from the window before: its `opened` is not
  -- stored any more, so its units could have been charged after a reset.
  function limit.refund(units, handle, _, _, a, b, c, x, y)
    local stored, taken = x and c == handle and a > 0, math.min(units, a)
    return stored and a + b > taken, stored and a + b == taken, -taken, 0, y
  end

  return limit
end

return sliding_window_counter
