-- fixed_window.
-- Value: a string, 'F1 used opened': the units used in a window, and when it was charged first, in
-- microseconds. The window begins then, or if it is aligned at the last multiple of the period. After
-- a reset the same window has another `opened`.
-- Constants: limit, period, and a form: 'first' for a window that begins with its first request,
-- 'aligned' for an aligned one. Cost: the units.
-- Observes: used, opened, and how long after that the window ends. For charge u is the digits of
-- `opened`, if it is stored.
--- constants limit, period, form
--- cost n
--- evaluate
t, a, b = now, 0, now
if value then
  a, u = string.match(#value <= longest and value or '', '^F1 (%d+) ([1-9]%d*)$')
  a, b = tonumber(a), tonumber(u or 0)
  if a and a <= 2 ^ 30 and b <= latest then
    local begins = form == 'aligned' and b - b % period or b
    if begins > now then t = begins end -- the clock has stepped back
    if t >= begins + period then a, b, u = 0, t, nil end
  else
    a, b, u, foreign = 0, now, nil, value
  end
end
c = form == 'aligned' and period - b % period or period
admits = a + n <= limit
--- retry
retry = b + c
--- charge
text = string.format('F1 %d %s', a + n, u or string.format(whole, b)) -- the digits as they were read
lasts = b + c - now
--- force
n = math.min(n, 2 ^ 30 - a) -- more than any limit
--- needed
if a > 0 then till = b + c end
--- tail period
--- refund
-- It subtracts the units from the window that was opened at `handle`, if that is the current one.
if b == handle then
  n, charges = -units, a > units
  if not charges then
-- CLEAR
  end
end
