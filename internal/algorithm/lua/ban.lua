-- What decide.lua and hold.lua do besides for a limiter with bans: the last key of a call has the
-- ban of the user's key.
-- Value: a string, 'X1 ends level lasts': until when the ban lasts, how many denials have banned
-- since all was last forgotten, and for how long it lasts, in microseconds. All is forgotten if the
-- key is not denied for another `lasts` after `ends`.
-- Of several limiters that decide together each has all of this, but for `block`.
-- Argument: the last of a call, 1 if a denial of it bans. hold.lua has one operation more:
--            '8'  ban by hand, for so many microseconds as there are units, or end the ban. If `given` is 1, nothing ends sooner
-- Replies, after all limits: 0, or 1 where the key was banned, 2 where this denial has banned it;
-- the instant; the end.
--- read
local value = redis.pcall('GET', KEYS[base + size])
local foreign = value
if value and value.err then
  if not string.find(value.err, 'WRONGTYPE', 1, true) then error(value.err) end
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
if foreign then redis.pcall('DEL', KEYS[base + size]) end -- nothing else might: it may have no TTL, and only denials and Block write here
--- write
local text = string.format('X1 ' .. whole .. ' %d ' .. whole, ban_ends, ban_level, ban_lasts)
local failed = redis.pcall('SET', KEYS[base + size], text, 'PX', string.format(whole, 2 * ban_lasts / 1000 + grace + 1)).err
--- look
local ban, ban_ends, ban_level, ban_lasts, till = 0, 0, 0, 0, 0 -- `till`: from then on, all limits would admit that deny by what is charged
local bans = ARGV[at + width - -- FLAG] + 0 == 1
if not why and op <= '2' then
-- READ
  if now < ban_ends then ban, why = 1, 5 end
end
--- block
if op == '8' then
  why = 1 -- it is done
  if units == 0 then
    redis.call('DEL', KEYS[base + size])
  else
-- READ
    if given == 0 or now + units > ban_ends then
      ban_ends, ban_lasts = now + units, math.max(units, given * ban_lasts)
-- WRITE
      err = failed
    end
  end
else
--- again
till = 0 -- it is asked again
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
reply[r + 1], reply[r + 2], reply[r + 3] = ban, now, ban_ends
r = r + 3
