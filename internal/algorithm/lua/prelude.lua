-- prelude.lua declares the names that the files behind it share. Apart from these names, files share only `now`
-- and `grace`, which clock.lua declares, `spent`, which decide.lua declares, and the KEYS and ARGV of
-- undeclared.lua. A script has as few functions as possible, because Lua creates each of them again whenever the
-- script runs.

-- Lua reads a local faster than a global.
local KEYS, ARGV, redis, string, math, tonumber = KEYS, ARGV, redis, string, math, tonumber

-- Integers become text by the format `whole`, because the conversions that Redis and Lua make on their own
-- take several times as long. On some platforms '%d' has only 32 bits.
local whole = #string.format('%d', 2 ^ 40) == 13 and '%d' or '%.0f'

-- A script for several calls carries out no further call once `spent` is above `time_budget`, in microseconds,
-- because Redis does nothing else while a script runs.
local time_budget = 1500

-- A foreign value counts as no value; doc.go says which values are foreign. `ahead` is the longest period. A
-- stored instant is at most `ahead` later than now, except the end of a bucket's debt and the epoch of a
-- queue. A stored text has at most `longest` bytes, not counting a record of holds and the free places of a
-- queue.
local ahead, longest = 34560000000000, 100
local latest = now + ahead

-- holds.lua assigns these functions. A script creates them only when it first needs them.
local parse, unfold, fold, speed, fastest
