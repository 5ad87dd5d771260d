
-- needed returns the instant until which the key is needed, or nil if it is not.
local function needed(key, c, n)
  ARGV[n] = 0
  local _, _, used, start, length = evaluate(key, c, n)
  if used > 0 then return start + length end
end
