-- leaky_bucket: KEYS[i] is a string, 'L1 tat f L', the instant at which the queue is drained; see
-- tat.lua.
local leaky_bucket = tat('L1')
