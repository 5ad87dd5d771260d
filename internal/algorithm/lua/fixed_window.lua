-- fixed_window.
-- Value: a string, 'F1 used start' or 'F1 used start length': the units used in the window that was
-- opened at `start` and lasts `length`, both in microseconds. Only a limit whose key does not
-- contain the period stores the length. An aligned window begins at the last multiple of its length
-- up to `start`, which is when it was charged first. After a reset the same window has another
-- `start`.
-- Constants: limit, period, and a kind: '' for a window that begins with its first request,
-- 'aligned' for an aligned one; 'named' or 'aligned named' if the length is stored. Cost: the
-- units.
-- Observes: used, start, length. For charge u is the digits of the start, if it is stored.
--- constants limit, period, kind
--- cost n
--- evaluate
t, a, b, c = now, 0, now, period
if value then
  a, u, c = string.match(#value <= longest and value or '', '^F1 (%d+) ([1-9]%d*) ?(%d*)$')
  a, b, c = tonumber(a), tonumber(u or 0), c == '' and period or tonumber(c or 0)
  if a and a <= 2 ^ 30 and b <= latest and c >= 1000 and c <= ahead then
    local begins = b
    if kind == 'aligned' or kind == 'aligned named' then begins = b - b % c end
    if begins > now then t = begins end
  else
    a, b, c, u, foreign = 0, now, period, nil, value
  end
end
if kind == 'aligned' or kind == 'aligned named' then
  if b - b % period ~= t - t % period or c ~= period then a, b, c, u = 0, t, period, nil end
elseif t >= b + c then
  a, b, c, u = 0, t, period, nil
end
admits = a + n <= limit
--- retry
retry = b + c
if kind == 'aligned' or kind == 'aligned named' then retry = retry - b % c end
--- charge
text = string.format('F1 %d %s', a + n, u or string.format(whole, b)) -- the digits as they were read
if kind == 'named' or kind == 'aligned named' then text = text .. string.format(' ' .. whole, c) end
lasts = b + c - now
if kind == 'aligned' or kind == 'aligned named' then lasts = lasts - b % c end
--- force
n = math.min(n, 2 ^ 30 - a) -- more than any limit
--- needed
if a > 0 then
  till = b + c
  if kind == 'aligned' or kind == 'aligned named' then till = till - b % c end
end
--- tail period
--- refund
-- It subtracts the units from the window that was opened at `handle`, if that is the current one.
if b == handle then
  n, charges = -units, a > units
  if not charges then
-- CLEAR
  end
end
