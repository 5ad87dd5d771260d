
-- needed returns the instant until which the key is needed, or nil if it is not.
local function needed(key, c)
  local t, current, before = find(key, c)
  if current + before > 0 then return t - t % ARGV[c + 1] + ARGV[c + 1] * (current > 0 and 2 or 1) end
end
