-- What decide.lua does besides for a limiter with bans. The last key of a call has the ban of the
-- user's key; of several limiters that decide together each has a key of its own.
--
-- Stored: a string, 'X1 ends level lasts': until when the ban lasts, how many denials have banned
-- since all was last forgotten, and for how long it lasts, in microseconds. All is forgotten if the
-- key is not denied for another `lasts` after `ends`.
-- Argument: the last of a call, 1 if a denial of it bans. There is one operation more than those of
-- holds.lua: '8', ban by hand, for so many microseconds as there are units, or end the ban. If `given`
-- is 1, nothing ends sooner.
-- Replies, after all limits: 0, or 1 where the key was banned, 2 where this denial has banned it;
-- the instant; the end.

-- read returns the ban that is stored at a key, and deletes a foreign value: nothing else might, for
-- it may have no TTL, and only denials and Block write here.
function ban.read(key, now)
  local value, ends_at, rank, length = redis.pcall('GET', key), 0, 0, 0
  local foreign_ban = value
  if value and value.err then
    if not string.find(value.err, 'WRONGTYPE', 1, true) then error(value.err) end
  elseif value then
    local ends, level, lasts = string.match(#value <= longest and value or '', '^X1 (%d+) (%d+) (%d+)$')
    ends, level, lasts = tonumber(ends), tonumber(level), tonumber(lasts)
    if ends and level and lasts and ends <= latest and level <= 2 ^ 30 and lasts <= ahead then
      foreign_ban = nil -- though it may be forgotten: if the clock steps back, it is not
      if now < ends + lasts then ends_at, rank, length = ends, level, lasts end
    elseif not ends then
      limit.check_version(value)
    end
  end
  if foreign_ban then redis.pcall('DEL', key) end
  return ends_at, rank, length
end

-- write stores a ban, and returns the error of Redis.
function ban.write(key, ends_at, rank, length)
  local text = string.format('X1 ' .. whole .. ' %d ' .. whole, ends_at, rank, length)
  return redis.pcall('SET', key, text, 'PX', string.format(whole, 2 * length / 1000 + grace + 1)).err
end

-- block bans by hand, or ends a ban, whatever is stored. It returns the error of Redis, and when the ban
-- ends.
function ban.block(key, now, units, given)
  local failure
  local until_then = 0
  if units == 0 then
    redis.call('DEL', key)
  else
    local ends_at, rank, length = ban.read(key, now)
    until_then = ends_at
    if given == 0 or now + units > ends_at then
      local span = math.max(units, given * length)
      until_then = now + units
      failure = ban.write(key, until_then, rank, span)
    end
  end
  return failure, until_then
end

-- begin bans for a denial, until `admitted` at least: then all limits would admit that have denied. It
-- returns 2, or 0 if Redis refuses the write: then the denial stands; and when the ban ends.
function ban.begin(key, now, admitted, rank)
  local levels, began = ban.levels, 2
  local next_rank = math.min(rank + 1, 2 ^ 30)
  local length = math.min(math.max(levels[math.min(next_rank, #levels)], admitted - now), ban.longest)
  local until_then = now + length
  local failure = ban.write(key, until_then, next_rank, length)
  if failure then began = 0 end
  return began, until_then
end

-- bars returns the later one of the instant `till` and that from which on a limit would admit what it
-- has denied, if the denial bans.
function limit.bars(till, bans, now, n, f, a, b, c, y)
  local latest_bar = till
  if bans then
    local fits_from = limit.when(now, n, f, a, b, c, y)
    if fits_from > till then latest_bar = fits_from end
  end
  return latest_bar
end

-- bars_without_held does so if the limit denies by what is charged alone: it is asked again.
function limit.bars_without_held(till, bans, now, plain, units, n, f, stored, key, records)
  local latest_bar, cost, part = till, n, f
  if bans then
    if not plain then
      cost, part = limit.more(0, 0, units)
    end
    local admits, _, a, b, c, _, _, y = limit.evaluate(stored, now, cost, part, key, records)
    if not admits then
      local fits_from = limit.when(now, cost, part, a, b, c, y)
      if fits_from > till then latest_bar = fits_from end
    end
  end
  return latest_bar
end
