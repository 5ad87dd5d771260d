
-- needed returns the instant until which what is charged is needed, or nil if it is not.
local function needed(key, c, _, t, current, before)
  if not t then t, current, before = find(key, c) end
  if current + before > 0 then return t - t % ARGV[c + 1] + ARGV[c + 1] * (current > 0 and 2 or 1) end
end

-- tail returns for how much longer the key is needed once units were charged.
local function tail(c) return 2 * ARGV[c + 1] end
