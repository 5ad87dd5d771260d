-- calendar: a fixed window whose windows are those of a calendar.
-- Value: a string, 'W1 used opened': the units used in a window, and when it was charged first, in
-- microseconds. The units count if `opened` is not before the start of the current window, which
-- the sender gives. No window is stored, so senders with different time zone data do not reset each
-- other's counts again and again.
-- Constants: limit; period, which no window is longer than; and the windows around the sender's
-- time: one is from `starts` to `ends`, the one before it begins at `before`, and the one after it
-- ends at `after`. Cost: the units.
-- Observes: used, opened, and how long after that the window ends, which may be negative after a
-- step back. For charge u is the digits of `opened`, if it is stored. The parts force and refund
-- are those of fixed_window.
--- constants limit, period, before, starts, ends, after
--- cost n
--- check
if now < before or now >= after then error('the clock of redis or of this process is wrong by more than a window of the calendar', 0) end
--- evaluate
t, a, b = now, 0, now
if value then
  a, u = string.match(#value <= longest and value or '', '^W1 (%d+) ([1-9]%d*)$')
  a, b = tonumber(a), tonumber(u or 0)
  if a and a <= 2 ^ 30 and b <= latest then
    -- After a step back of the clock it is still the window in which they were charged, or the last
    -- one that is known.
    if b >= ends then t = math.max(now, ends) elseif b >= starts then t = math.max(now, starts) end
  else
    a, b, u, foreign = 0, now, nil, value
  end
end
local start
start, c = starts, ends
if t >= ends then start, c = ends, after elseif t < starts then start, c = before, starts end
if t < before then start, c = t, before end -- what was held has expired long ago
if b < start then a, b, u = 0, t, nil end
c = c - b
admits = a + n <= limit
--- charge
text = string.format('W1 %d %s', n + a, u or string.format(whole, b)) -- the digits as they were read
lasts = c + b - now
--- retry
retry = b + c
--- needed
if a > 0 then till = b + c end
--- tail period
