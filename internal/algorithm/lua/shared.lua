-- Locals are faster than globals.
local KEYS, ARGV, redis, string, math, tonumber = KEYS, ARGV, redis, string, math, tonumber

-- Integers become text by '%d': what Redis and Lua convert by themselves takes several times as
-- long. '%d' has 32 bits on some platforms.
local whole = #string.format('%d', 2 ^ 40) == 13 and '%d' or '%.0f'

-- `spent` estimates the microseconds that the decisions so far took, beyond the few that any takes.
-- Above `most` the script makes no further decision: Redis does nothing else meanwhile.
local most = 1500

-- Foreign values count as nothing stored: doc.go says what is foreign. No instant that is stored is
-- further `ahead` of the clock than the longest period, but for the end of a bucket's debt. No text
-- is longer than `longest`, but for the record of the holds and the free places of a queue.
local ahead, longest = 34560000000000, 100
local latest = now + ahead

-- Of a log, `records` is 1 if its last member is a record of holds, and else 0; `newest_rank` is
-- the rank of the newest charge.
local records, newest_rank = 0, '-1'
