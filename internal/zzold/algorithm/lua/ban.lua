-- What decide.lua and hold.lua do besides for a limiter with bans: the last key of a call has the ban of the user's key.
-- Value: a string, 'X1 ends level lasts': until when the ban lasts, how many there were before all were forgotten, and for how
-- long it lasts, in microseconds. All is forgotten when nothing was denied for as long after its end: so long is its TTL.
-- Of several limiters that decide together each has all of this, but for `unless`, which is there once.
-- Argument: the last of a call, 1 if a denial of it bans. hold.lua has one operation more:
--            '8'  ban by hand, for so many microseconds as there are units, or end the ban. If `given` is 1, nothing ends sooner
-- Replies a block of its own: 0, or 1 where the key was banned, 2 where this denial has banned it; the instant; the end.
--- read
local value = redis.pcall('GET', KEYS[base + size])
local foreign = value
if value and value.err then
  mistyped(value.err)
elseif value then
  local ends, level, lasts = string.match(#value <= longest and value or '', '^X1 (%d+) (%d+) (%d+)$')
  ends, level, lasts = tonumber(ends), tonumber(level), tonumber(lasts)
  if ends and level and lasts and ends <= latest and level <= 2 ^ 30 and lasts <= ahead then
    foreign = nil -- though it may be forgotten: if the clock steps back, it is not
    if now < ends + lasts then ban_ends, ban_level, ban_lasts = ends, level, lasts end
  elseif not ends then
-- NEWER
  end
end
if foreign then redis.pcall('DEL', KEYS[base + size]) end -- it may have no TTL, and not every key is denied one day
--- write
local text = string.format('X1 ' .. whole .. ' %d ' .. whole, ban_ends, ban_level, ban_lasts)
local failed = redis.pcall('SET', KEYS[base + size], text, 'PX', string.format(whole, 2 * ban_lasts / 1000 + grace + 1)).err
--- look
local ban, ban_ends, ban_level, ban_lasts, till = 0, 0, 0, 0, 0 -- `till` is when all would admit that deny by what is charged
local bans = ARGV[at + -- FLAG] + 0 == 1
if not why then
-- READ
  if now < ban_ends then ban, why = 1, 5 end
end
--- hold
local ban, ban_ends, ban_level, ban_lasts, till = 0, 0, 0, 0, 0
local bans = ARGV[at + -- FLAG] + 0 == 1
if err then
elseif op == '8' and units == 0 then
  frees('SET', KEYS[base + size], '', 'NX')
  redis.call('DEL', KEYS[base + size])
elseif decides or op == '8' then
-- READ
  if decides then
    if now < ban_ends then ban = 1 end
  elseif given == 0 or now + units > ban_ends then
    ban_ends, ban_lasts = now + units, math.max(units, given * ban_lasts)
-- WRITE
    err = failed
  end
end
--- unless
if ban == 1 or op == '8' then
  for i = r + 2, r + 8 * size do reply[i] = 0 end
  reply[r + 1] = ban == 1 and 5 or 1
elseif not err then
--- denied
if bans then
  local retry
-- RETRY
  if retry > till then till = retry end
end
--- begin
if till > 0 and not err then
  local levels = { -- LEVELS }
  ban_level = math.min(ban_level + 1, 2 ^ 30)
  ban_lasts = math.min(math.max(levels[math.min(ban_level, #levels)], till - now), -- LONGEST)
  ban_ends = now + ban_lasts
-- WRITE
  if not failed then ban = 2 end -- else the denial stands
end
--- reply
r = r + -- EACH * (size - 1)
reply[r + 1], reply[r + 2], reply[r + 3] = ban, now, ban_ends
for i = r + 4, r + -- EACH do reply[i] = 0 end
