-- The names that all files behind this one share. prelude.lua is the only file whose locals other
-- files use.

-- Locals are faster than globals.
local KEYS, ARGV, redis, string, math, tonumber = KEYS, ARGV, redis, string, math, tonumber

-- Integers become text by the format `whole`, because what Redis and Lua convert by themselves takes
-- several times as long. '%d' has 32 bits on some platforms.
local whole = #string.format('%d', 2 ^ 40) == 13 and '%d' or '%.0f'

-- A script makes no further decision once `spent` is above this, in microseconds: Redis does nothing
-- else while a script runs.
local time_budget = 1500

-- Foreign values count as nothing stored: doc.go says what is foreign. No stored instant is further
-- `ahead` of the clock than the longest period, except the end of a bucket's debt. No stored text is
-- longer than `longest`, except the record of the holds and the free places of a queue.
local ahead, longest = 34560000000000, 100
local latest = now + ahead

-- holds.lua creates these functions where a script first needs them.
local parse, unfold, fold, speed, fastest
