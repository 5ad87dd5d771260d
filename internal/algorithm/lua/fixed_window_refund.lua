
-- refund takes the units off the window that opened at `id`, while that is the open one.
local function refund(key, c, n, id)
  local _, _, used, start, length, digits = evaluate(key, c, n)
  if start ~= id then return end
  used = used - ARGV[n]
  if used < 1 then redis.call('DEL', key) else return save(key, ARGV[c + 2], used, start, length, digits) end
end
