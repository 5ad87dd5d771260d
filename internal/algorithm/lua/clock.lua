-- The server's clock decides: every script begins with this. A script has as few functions as possible,
-- because Redis makes each of them anew for every call. A key is kept for `grace` milliseconds after it is
-- needed: its TTL counts from a cached clock, which may be behind this one, and it must not expire early.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local grace = 100
