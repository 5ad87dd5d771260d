
-- refund subtracts the cost from the debt, which does not become negative.
local function refund(key, c, n)
  local w, f = debt(key, c)
  if w + f == 0 then return end
  w, f = w - ARGV[n], f - ARGV[n + 1]
  if f < 0 then w, f = w - 1, f + ARGV[c + 3] end
  if w < 0 or w + f == 0 then redis.call('DEL', key) else return charge(key, c, n, now, 0, 0, 0, w, f) end
end
