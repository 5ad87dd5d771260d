-- A fixed window that begins with its first request, as rueidislimiter counts it: the same commands on
-- the same two keys, in words of our own.
--
-- KEYS[1]  the units of the window    KEYS[2]  when it ends
-- ARGV[1]  units to add               ARGV[2]  now               ARGV[3]  the end of a window that begins now
-- reply    the units of the window, these included, and its end
-- Times are in milliseconds, by the clock of the caller. Both keys stay a second longer than the window.

local ends = redis.call('GET', KEYS[2])
ends = ends and tonumber(ends)
if not ends or ends < tonumber(ARGV[2]) then
  ends = tonumber(ARGV[3])
  local gone = ends + 1000
  redis.call('SET', KEYS[1], 0, 'PXAT', gone)
  redis.call('SET', KEYS[2], ends, 'PXAT', gone)
end
return {redis.call('INCRBY', KEYS[1], ARGV[1]), ends}
