
-- refund subtracts the units from the window that was opened at `id`, if that is the current one.
local function refund(key, c, n, id)
  local _, _, used, start, length, digits = evaluate(key, c, n)
  if start ~= id then return end
  used = used - ARGV[n]
  if used < 1 then redis.call('DEL', key) else return save(key, ARGV[c + 2], used, start, length, digits) end
end
