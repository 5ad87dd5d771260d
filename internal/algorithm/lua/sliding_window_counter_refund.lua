
-- refund subtracts the units from the window that began at `id`, if it is the current one or the one before.
local function refund(key, c, n, id)
  local period, _, current, before, window, digits = ARGV[c + 1], find(key, c)
  if window == id and current > 0 then
    current = math.max(0, current - ARGV[n])
  elseif window == id + period and before > 0 then
    before = math.max(0, before - ARGV[n])
  else
    return
  end
  if current + before == 0 then
    redis.call('DEL', key)
  else
    return save(key, c, window, current, before, window + period * (current > 0 and 2 or 1), digits)
  end
end
