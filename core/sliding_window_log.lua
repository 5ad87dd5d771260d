-- sliding_window_log: KEYS[i] is a sorted set with an entry for each unit admitted. Its score is the
-- instant in microseconds, its member that instant or the next number that is free, so that entries
-- of one instant are told apart and stand in the order in which they came.
-- Reads (t, used, y, newest): the units in the window, and the instant of the newest. y is, if it
-- admits, the first member to add, and else the instant at which there is room.
-- Arguments: n, limit, period.

local sliding_window_log = { args = 3 }

local function digits(number) return string.format('%.0f', number) end

function sliding_window_log.read(key, now, a)
  local n, limit, period = tonumber(ARGV[a]), tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2])
  local last = fetch(key, 'ZRANGE', -1, -1, 'WITHSCORES')
  local member, newest = tonumber(last and last[1]), tonumber(last and last[2])
  if not (member and newest and member >= newest and member < 2 ^ 53) then
    if last and last[1] then discard(key) end
    return n <= limit, now, 0, now, 0
  end
  local t = math.max(now, newest)
  local used = redis.call('ZCOUNT', key, '(' .. digits(t - period), '+inf')
  if used + n <= limit then return true, t, used, math.max(t, member + 1), newest end
  if n > limit then return false, t, used, 0, newest end
  local rank = n - limit - 1 -- counted from the newest, as the used ones are the last
  local leaves = redis.call('ZRANGE', key, rank, rank, 'WITHSCORES')
  return false, t, used, leaves[2] + period, newest
end

-- each calls a command for the n members from first on, in parts that Lua's stack can take.
local function each(n, first, command)
  for from = 0, n - 1, 500 do
    local arguments = {}
    for i = from, math.min(from + 500, n) - 1 do command(arguments, digits(first + i)) end
    redis.call(unpack(arguments))
  end
end

function sliding_window_log.charge(key, a, t, _, first)
  local n, period = tonumber(ARGV[a]), tonumber(ARGV[a + 2])
  redis.call('ZREMRANGEBYSCORE', key, '-inf', digits(t - period))
  local score = digits(t)
  each(n, first, function(arguments, member)
    if not arguments[1] then arguments[1], arguments[2] = 'ZADD', key end
    arguments[#arguments + 1], arguments[#arguments + 2] = score, member
  end)
  redis.call('PEXPIREAT', key, math.ceil((t + period) / 1000))
end

-- refund removes the entries of a charge, from the member `mark` on, as far as they are still there.
function sliding_window_log.refund(key, _, a, mark)
  each(tonumber(ARGV[a]), mark, function(arguments, member)
    if not arguments[1] then arguments[1], arguments[2] = 'ZREM', key end
    arguments[#arguments + 1] = member
  end)
end
