-- Every script begins with this file. `now` is the time of the Redis server, in microseconds since the Unix
-- epoch. A key that is needed must not expire. Redis counts the PX of a SET from a cached clock, which may be
-- behind `now`, so a SET keeps a value `grace` milliseconds longer than it is needed. PEXPIREAT takes an
-- instant, so it needs no grace.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local grace = 100
