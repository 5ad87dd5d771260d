-- token_bucket.lua decides for token buckets and for GCRA. Both store a debt: the time until the full
-- capacity is available again. Each unit adds period/count microseconds to the debt. In lowest terms, this
-- fraction is p/q. All times are pairs of whole microseconds and parts of 1/q of a microsecond. So a decision
-- only adds and compares, and rounds nothing, unless the stored debt drains at another rate.
--
-- Stored: a string, FORM .. 'ends' or FORM .. 'ends+f': the instant at which the debt ends, and its parts if
-- there are any. FORM is a version and the rate at which the debt drains: 'B1 count ', or
-- 'B1 count/period ' if the key of the limit does not contain the period.
-- Constants: FORM; the capacity as a debt, W and F; q; and the period.
-- Cost: the debt that the units add, n and f.
-- Observed: a and b are the debt. It is larger than the capacity if more was charged than fits, or if the clock
-- has stepped back. If the value was stored at another rate, c is the time until the debt has drained at that
-- rate; otherwise c is 0.

local function token_bucket(constants_at)
  local form, W, F = ARGV[constants_at], ARGV[constants_at + 1] + 0, ARGV[constants_at + 2] + 0
  local q, period = ARGV[constants_at + 3] + 0, ARGV[constants_at + 4] + 0
  local limit = {}
  limit.window = W
  limit.drains = true

  function limit.numbers(position)
    for i = position + 1, position + 4 do ARGV[i] = ARGV[i] + 0 end
  end

  function limit.cost(position)
    return ARGV[position] + 0, ARGV[position + 1] + 0
  end

  -- read reads a value that has parts or another rate, or is foreign. It returns the debt, as two numbers; the
  -- time until the debt has drained at the other rate, or 0; and the value if it is foreign, otherwise nil.
  -- Units that were used at another rate stay used: the debt is the time in which they drain at the rate of
  -- this limit, rounded up, and at most 2^60. Lua rounds the products of numbers, so the computed time may be a
  -- little too short. The factor 1 + 2^-50 is larger than that error, so the result is never too short.
  function limit.read(value, now)
    local debt, parts, other, wrong = 0, 0, 0, nil
    local text = #value <= longest and value .. '+0' or '' -- a value without parts gets the parts 0
    local ends, rest
    local own, count, per = string.sub(value, 1, #form) == form, q, period
    if own then
      ends, rest = string.match(text, '^(%d+)%+([^+]+)%+?0?$', #form + 1)
    else
      count, per, ends, rest = string.match(text, '^B1 (%d+)/?(%d*) (%d+)%+([^+]+)%+?0?$')
      count, per = tonumber(count or 0), tonumber(per or '') or period
    end
    ends, rest = tonumber(ends or ''), tonumber(rest or '')
    if not (rest and count > 0 and per > 0 and ends < 2 ^ 53 and rest >= 0 and rest < count) then
      wrong = value
    elseif ends >= now and not own then
      other = ends - now + (rest > 0 and 1 or 0)
      debt = math.min(math.ceil(other * (count / per / (string.match(form, ' (%d+)') / period)) * (1 + 2 ^ -50)), 2 ^ 60)
    elseif ends >= now then
      debt, parts = ends - now, math.ceil(rest) -- another version may have stored parts that are not whole
      if parts == q then debt, parts = debt + 1, 0 end
    end
    return debt, parts, other, wrong
  end

  function limit.evaluate(value, now, n, f)
    local w, v, left, strange = 0, 0, 0, nil
    if value then
      local ends = #value <= longest and string.sub(value, 1, #form) == form and tonumber(string.sub(value, #form + 1))
      if not ends or ends % 1 ~= 0 or ends >= 2 ^ 53 then
        w, v, left, strange = limit.read(value, now)
      elseif ends > now then
        w = ends - now
      end
    end
    local whole_sum, part_sum = w + n, v + f
    if part_sum >= q then whole_sum, part_sum = whole_sum + 1, part_sum - q end
    return whole_sum < W or (whole_sum == W and part_sum <= F), now, w, v, left, strange
  end

  function limit.when(now, n, f, a, b, c)
    local fits = now + a + n - W + math.ceil((b + f - F) / q)
    if a >= 2 ^ 60 then
      fits = now + c
    elseif c > 0 then
      fits = now + math.ceil((fits - now) * (c / a) * (1 + 2 ^ -50)) -- the debt drains at the other rate
    end
    return fits
  end

  -- charge takes units back if the cost is negative. The last instant that can be stored is 2^53 - 1.
  function limit.charge(now, n, f, _, a, b)
    local w, v = a + n, b + f
    if v >= q then w, v = w + 1, v - q elseif v < 0 then w, v = w - 1, v + q end
    if now + w >= 2 ^ 53 then w, v = 2 ^ 53 - 1 - now, 0 end
    local stored = form .. string.format(whole, now + w)
    if v > 0 then stored = stored .. '+' .. v end
    return stored, w + 1
  end

  -- debt returns the debt that units add, as two numbers. It is exact below 2^53 for up to 2^38 units. No larger debt,
  -- and no more units, ever fit.
  function limit.debt(units)
    local count = tonumber(string.match(form, ' (%d+)'))
    local each, part = math.floor(period / count), (period % count) / (count / q) -- the debt of one unit: whole microseconds, and parts
    local number = units > 2 ^ 38 and 2 ^ 38 or units
    local low = number % 2 ^ 16 -- the product of number and part may exceed 2^53, so it is computed in two steps
    local parts = part * ((number - low) / 2 ^ 16)
    local over = parts % q
    local rest = over * 2 ^ 16 + part * low
    local fraction = rest % q
    local time = number * each + (parts - over) / q * 2 ^ 16 + (rest - fraction) / q
    if time > 2 ^ 53 then time = 2 ^ 53 end
    return time, fraction
  end

  function limit.more(n, f, units)
    local w, v = limit.debt(units)
    w, v = w + n, v + f
    if v >= q then w, v = w + 1, v - q end
    return w, v
  end

  function limit.bound(units, _)
    local w, v = limit.debt(units)
    return w, v
  end

  function limit.pace()
    return string.match(form, ' (%d+)') .. '/' .. string.format(whole, period)
  end

  -- forced is called for units that are charged whether they fit or not. It decides at which rate the whole debt
  -- drains from now on. If that is the rate of this limit, forced returns nil, and the text that charge has
  -- returned is stored. Otherwise forced returns the text to store, and for how long it is needed.
  --
  -- If the units are charged because their hold has `expired`, the debt drains at the fastest rate at which the
  -- held units were reserved (`pace`), or at the stored rate if there is a stored debt and its rate is faster.
  -- So the result does not depend on which limiter finds the expired hold.
  -- If the units are charged by a settlement, the debt usually drains at the rate of this limit. But if the
  -- stored rate is faster, and the stored debt is larger than this limit could have admitted, the debt keeps the
  -- stored rate, because earlier callers got replies that say when it ends.
  function limit.forced(value, now, units, a, b, c, pace, expired)
    local present = limit.pace()
    local stored, drains, replaces, needs = present, nil, nil, nil
    if c > 0 then
      local count, per = string.match(value, '^B1 (%d+)/?(%d*) ')
      stored = count .. '/' .. (per ~= '' and per or string.format(whole, period))
    end
    if expired then
      drains = pace == '' and present or pace
      if a + b > 0 then drains = fastest(drains, stored) end
    elseif c > 0 and c < a and a > W then
      drains = stored
    end
    if drains and drains ~= present then
      local left = c > 0 and c or a + (b > 0 and 1 or 0)
      if stored ~= drains then left = math.min(math.ceil(left * (speed(stored) / speed(drains)) * (1 + 2 ^ -50)), 2 ^ 60) end
      left = math.min(left + math.ceil(units / speed(drains) * (1 + 2 ^ -50)), 2 ^ 53 - 1 - now)
      if not string.find(form, '/', 1, true) then drains = string.match(drains, '%d+') end
      replaces, needs = 'B1 ' .. drains .. ' ' .. string.format(whole, now + left), left + 1
    end
    return replaces, needs
  end

  function limit.needed(now, a, b, c)
    return a + b > 0 and now + (c > 0 and c or a) + 1 or nil
  end

  function limit.tail(held, pace)
    return math.ceil(held / speed(pace) * (1 + 2 ^ -50)) + 1
  end

  -- refund takes back units that were charged: it subtracts their debt from the stored debt. It does so only if the
  -- stored debt still ends at `handle` with the parts `expiry`, as just after their charge, because then nothing
  -- has been charged since. If the stored debt is not larger than theirs, the value is removed.
  function limit.refund(units, handle, expiry, now, a, b, c)
    local last, w, v = c == 0 and a + b > 0 and now + a == handle and b == expiry, 0, 0
    if last then
      w, v = limit.debt(units)
    end
    local stays = a > w or a == w and b > v
    return last and stays, last and not stays, -w, -v
  end

  return limit
end

return token_bucket
