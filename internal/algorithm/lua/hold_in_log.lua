-- What is charged is a sorted set. The record of the holds is the member with the score +inf.
--- keeps records, newest_rank
--- load
records, newest_rank = 0, '-1'
if not value then value = redis.pcall('ZRANGE', key, '-1', '-1', 'WITHSCORES') end
if value.err then mistyped(value.err) end
if value[2] == 'inf' then record = value[1] end
--- loaded
records, newest_rank = 1, '-2'
--- charged
expires = t + period
--- replace
-- It removes the record, too: it is stored again.
local done = redis.pcall('SET', key, '', 'PX', 1000)
if done.err then
  err = all and done.err or nil
else
  redis.call('DEL', key)
  list = list or unfold(held, first, rest)
  record, records, newest_rank = '', 0, '-1'
end
--- clear
if records == 0 then redis.call('DEL', key) else redis.call('ZREMRANGEBYRANK', key, 0, -2) end
--- write
if record ~= before then
  local added = record ~= '' and redis.pcall('ZADD', key, '+inf', record)
  err = type(added) == 'table' and added.err or nil
  if not err and before ~= '' then redis.call('ZREM', key, before) end
  records, newest_rank = record == '' and 0 or 1, record == '' and '-1' or '-2'
end
-- An instant that has passed would remove the key at once, before what follows in this call.
if not err and (record ~= '' or before ~= '') then
  redis.call('PEXPIREAT', key, string.format(whole, math.max(last, now + 100000) / 1000 + 1))
end
