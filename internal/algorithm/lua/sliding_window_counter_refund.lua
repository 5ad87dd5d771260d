
-- refund subtracts the units from the window that was opened at `id`, if it is the current one or the one before.
local function refund(key, c, n, id)
  local period, t, current, before, opened, digits = ARGV[c + 1], find(key, c)
  if digits and opened == id and current > 0 then
    current = math.max(0, current - ARGV[n])
  elseif id - id % period + period == t - t % period and before > 0 then
    before = math.max(0, before - ARGV[n])
  else
    return
  end
  if current + before == 0 then redis.call('DEL', key) else return save(key, c, opened, current, before, digits) end
end
