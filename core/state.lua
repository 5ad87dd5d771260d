-- What every script begins with. Scripts are short of functions, and those of a refund are left out of
-- a decision's: Redis makes each function anew for every call.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local charging -- whether the decision at hand may write

-- discard removes what is not ours, where it may: nothing would ever give it a TTL. err, if any, is that
-- of reading it; one that does not say that the value is of another type is for the caller.
local function discard(key, err)
  if err and not string.find(err, 'WRONGTYPE', 1, true) then error(err) end
  if charging then redis.pcall('DEL', key) end
end
