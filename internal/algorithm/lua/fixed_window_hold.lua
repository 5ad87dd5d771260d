
-- needed returns the instant until which the key is needed, or nil if it is not.
local function needed(key, c, n)
  ARGV[n] = 0
  local _, _, used, start, length = evaluate(key, c, n)
  if ARGV[c + 2] == 'aligned' or ARGV[c + 2] == 'aligned named' then start = start - start % length end
  if used > 0 then return start + length end
end
