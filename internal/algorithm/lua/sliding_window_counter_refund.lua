
-- refund subtracts the units from the window that was opened at `id`, while it is the current one: of the one before it
-- is not known whether it is the same, after a reset.
local function refund(key, c, n, id)
  local _, current, before, opened, digits, _, start = find(key, c)
  if not digits or opened ~= id or current == 0 then return end
  current = math.max(0, current - ARGV[n])
  if current + before == 0 then redis.call('DEL', key) else return save(key, c, opened, current, before, digits, start) end
end
