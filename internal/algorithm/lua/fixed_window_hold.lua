
-- needed returns the instant until which what is charged is needed, or nil if it is not.
local function needed(key, c, n, t, used, start, length)
  if not t then
    ARGV[n] = 0
    t, t, used, start, length = evaluate(key, c, n)
  end
  if ARGV[c + 2] == 'aligned' or ARGV[c + 2] == 'aligned named' then start = start - start % length end
  if used > 0 then return start + length end
end

-- tail returns for how much longer the key is needed once units were charged.
local function tail(c) return ARGV[c + 1] end
