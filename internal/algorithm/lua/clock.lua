-- Every script begins with this file. `now` is the time of the Redis server, in microseconds since the Unix
-- epoch. A key is kept for `grace` milliseconds longer than it is needed: Redis counts TTLs from a cached
-- clock, which may be behind `now`, and a key that is needed must not expire.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local grace = 100
