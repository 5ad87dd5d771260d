
-- needed returns the instant until which the key is needed, or nil if it is not.
local function needed(key, c)
  local _, current, before, window = find(key, c)
  if current + before > 0 then return window + ARGV[c + 1] * (current > 0 and 2 or 1) end
end
