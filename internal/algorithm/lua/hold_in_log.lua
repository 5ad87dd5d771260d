-- What follows stores a sorted set. The record of the holds is the member with the score +inf.
local records, newest_rank, expires = 0, '-1', nil

-- load reads the key and returns its record.
local function load(key)
  records, newest_rank = 0, '-1'
  local last = redis.pcall('ZRANGE', key, '-1', '-1', 'WITHSCORES')
  if last.err then mistyped(last.err) end
  local record = last[2] == 'inf' and parse(last[1])
  if record then records, newest_rank = 1, '-2' end
  return record or parse()
end

-- frees finds out whether Redis is full before the first write of a call needs no memory.
local function frees(key)
  if several then full = full or refuses(redis.pcall('ZADD', key, 'XX', 0, '')) end
end

-- write stores the record. The key is kept until `last`.
local function write(key, record, _, last)
  local before, text = record.text, format(record)
  if text ~= before then
    local added = text and redis.pcall('ZADD', key, '+inf', text) or frees(key)
    if type(added) == 'table' then return added.err end
    if before then redis.call('ZREM', key, before) end
    record.text, records, newest_rank = text, text and 1 or 0, text and '-2' or '-1'
  end
  -- An instant that has passed would remove the key at once, although a charge may follow.
  if text or before then redis.call('PEXPIREAT', key, math.ceil(math.max(last, started + 100000) / 1000)) end
end

-- replace removes a foreign value, and the record with it: write stores that again.
local function replace(key, record)
  local done = redis.pcall('SET', key, '', 'PX', 1000)
  if done.err then return done.err end
  redis.call('DEL', key)
  record.text, records, newest_rank = nil, 0, '-1'
end

-- clear removes all but the record.
local function clear(key)
  frees(key)
  if records == 0 then redis.call('DEL', key) else redis.call('ZREMRANGEBYRANK', key, 0, -2) end
end
