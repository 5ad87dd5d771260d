-- What follows stores a sorted set. The record of the holds is the member with the score +inf.
local records, newest_rank, expires = 0, '-1', nil
local id, charged, held, first, rest -- the record
local text, list -- as it is stored, and its holds where they were looked at

-- load reads the key.
local function load(key)
  local last = redis.pcall('ZRANGE', key, '-1', '-1', 'WITHSCORES')
  if last.err then mistyped(last.err) end
  text, id = last[1], nil
  if last[2] == 'inf' then id, charged, held, first, rest = parse(text) end
  records, newest_rank = 1, '-2'
  if not id then
    id, charged, held, first, rest, text = 0, 0, 0, 0, '', ''
    records, newest_rank = 0, '-1'
  end
end

-- write stores the new text of the record. The key is kept until `last`.
local function write(key, new, _, last)
  local before = text
  if new ~= before then
    local added = new ~= '' and redis.pcall('ZADD', key, '+inf', new) or frees('ZADD', key, 'XX', '0', '')
    if type(added) == 'table' then return added.err end
    if before ~= '' then redis.call('ZREM', key, before) end
    text, records, newest_rank = new, new == '' and 0 or 1, new == '' and '-1' or '-2'
  end
  -- An instant that has passed would remove the key at once, although a charge may follow.
  if new ~= '' or before ~= '' then redis.call('PEXPIREAT', key, string.format(whole, math.max(last, started + 100000) / 1000 + 1)) end
end

-- replace removes a foreign value, and the record with it: write stores that again.
local function replace(key)
  local done = redis.pcall('SET', key, '', 'PX', 1000)
  if done.err then return done.err end
  redis.call('DEL', key)
  list = list or unfold(held, first, rest)
  text, records, newest_rank = '', 0, '-1'
end

-- clear removes all but the record.
local function clear(key)
  frees('ZADD', key, 'XX', '0', '')
  if records == 0 then redis.call('DEL', key) else redis.call('ZREMRANGEBYRANK', key, 0, -2) end
end
