-- Every script begins with this: the server's clock decides, in microseconds since the Unix epoch.
-- A key is kept for `grace` milliseconds longer than it is needed, because TTLs count from a cached
-- clock of Redis, which may be behind this one, and no key may expire early. A script has as few
-- functions as possible, because Lua creates each of them again in every call.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local grace = 100
