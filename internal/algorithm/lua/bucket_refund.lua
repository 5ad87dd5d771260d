
-- refund subtracts the cost from the debt if the debt still ends at `ends` and `f`: nothing was charged since.
local function refund(key, c, n, ends, f)
  local w, part = read(key, c)
  if w + part == 0 or now + w + math.floor(math.ceil(part) / ARGV[c + 3]) ~= ends or math.ceil(part) % ARGV[c + 3] ~= f then return end
  w, f = w - ARGV[n], part - ARGV[n + 1]
  if f < 0 then w, f = w - 1, f + ARGV[c + 3] end
  if w < 0 or w + f == 0 then redis.call('DEL', key) else return charge(key, c, n, now, 0, 0, 0, w, f) end
end
