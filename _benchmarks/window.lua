-- This script counts a fixed window that begins with its first request, as rueidislimiter does. It runs the same
-- commands on the same two keys, but it was written for this benchmark.
--
-- KEYS[1]  the units used in the window
-- KEYS[2]  when the window ends
-- ARGV[1]  the units to add
-- ARGV[2]  the current time
-- ARGV[3]  when a window that begins now would end
-- returns  the units used in the window, including these, and when it ends
-- Times are in milliseconds by the caller's clock. Both keys expire a second after the window ends.

local ends = redis.call('GET', KEYS[2])
ends = ends and tonumber(ends)
if not ends or ends < tonumber(ARGV[2]) then
  ends = tonumber(ARGV[3])
  local gone = ends + 1000
  redis.call('SET', KEYS[1], 0, 'PXAT', gone)
  redis.call('SET', KEYS[2], ends, 'PXAT', gone)
end
return {redis.call('INCRBY', KEYS[1], ARGV[1]), ends}
