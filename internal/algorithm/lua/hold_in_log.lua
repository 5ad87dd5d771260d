-- What follows stores a sorted set. The record of the holds is the member with the score +inf.
local records = 0

-- load reads the key and returns its record.
local function load(key)
  records = 0
  local last = redis.pcall('ZRANGE', key, -1, -1, 'WITHSCORES')
  if last.err then mistyped(last.err) end
  local record = last[2] == 'inf' and parse(last[1])
  if record then records = 1 end
  return record or parse()
end

-- write stores the key. It is kept for as long as it is needed once everything held is charged.
local function write(key, record, _, needed)
  local text, added = format(record), nil
  if text ~= record.text then
    if text then added = redis.pcall('ZADD', key, '+inf', text) end
    if type(added) == 'table' then return added.err end
    if record.text then redis.call('ZREM', key, record.text) end
    record.text, records = text, text and 1 or 0
  end
  local last = record.list[#record.list]
  redis.call('PEXPIREAT', key, math.ceil(math.max(needed(), last and last[1] + ARGV[c + 1] or 0) / 1000))
end

local function clear(key, record)
  redis.call('DEL', key)
  record.text, records = nil, 0
end
