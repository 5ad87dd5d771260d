-- What is charged is a string, and behind it is the record of the holds.
--- keeps value
--- load
if value == nil then value = redis.pcall('GET', key) end
if value and value.err then value = mistyped(value.err) end
local bar = value and string.find(value, '|', 1, true)
if bar then record = string.sub(value, bar) end
--- loaded
value = bar > 1 and string.sub(value, 1, bar - 1)
--- charged
value, expires = text, now + lasts
--- replace
value = nil
--- clear
value, expires, a, b = nil, nil, 0, 0
--- write
-- Beside a record a window that has ended stays, too: if the clock steps back, it is open again.
if till or record ~= '' then
  err = redis.pcall('SET', key, (value or '') .. record, 'PX', string.format(whole, math.max(0, last - now) / 1000 + grace + 1)).err
else
  redis.call('DEL', key)
end
