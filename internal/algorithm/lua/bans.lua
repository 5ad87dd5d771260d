-- bans.lua has the functions with which decide.lua bans keys, if a limiter has bans. Behind the keys of
-- the limits a call has a key for the ban of each limiter: a limiter that decides alone has one, and if
-- several decide together, each of them that has bans has one.
--
-- Stored: a string, 'X1 ends level lasts': the instant at which the ban ends, how many denials have
-- banned the key since its bans were last forgotten, and how long this ban lasts, in microseconds. Its
-- bans are forgotten if the key is not denied for another `lasts` after `ends`.
-- Argument: the last one of a call, 1 if a denial bans.
-- Operation '8', which only limiters with bans have: it bans for as many microseconds as there are units.
-- With 0 units it ends the ban. If `given` is 1, a ban that ends later stays as it is.
-- Replies, behind those of all limits: 0, or 1 if the key was banned before the call, or 2 if its denial
-- has banned it; the instant; and when the ban ends.

local function bans(limit, ban)
  -- read returns the end of the ban that is stored at a key, its level, and how long it lasts. It deletes
  -- a foreign value, which may have no TTL, because only denials and operation '8' write here.
  function ban.read(key, now)
    local value, ends_at, rank, length = redis.pcall('GET', key), 0, 0, 0
    local foreign = value
    if value and value.err then
      if not string.find(value.err, 'WRONGTYPE', 1, true) then error(value.err) end
    elseif value then
      local ends, level, lasts = string.match(#value <= longest and value or '', '^X1 (%d+) (%d+) (%d+)$')
      ends, level, lasts = tonumber(ends), tonumber(level), tonumber(lasts)
      if ends and level and lasts and ends <= latest and level <= 2 ^ 30 and lasts <= ahead then
        foreign = nil -- even if it is forgotten: if the clock steps back, it counts again
        if now < ends + lasts then ends_at, rank, length = ends, level, lasts end
      elseif not ends then
        limit.check_version(value)
      end
    end
    if foreign then redis.pcall('DEL', key) end
    return ends_at, rank, length
  end

  -- write stores a ban and returns the error of Redis.
  function ban.write(key, ends_at, level, length)
    local text = string.format('X1 ' .. whole .. ' %d ' .. whole, ends_at, level, length)
    local done = redis.pcall('SET', key, text, 'PX', string.format(whole, 2 * length / 1000 + grace + 1))
    return done.err
  end

  -- block does operation '8'. It returns the error of Redis, and when the ban ends.
  function ban.block(key, now, units, given)
    local failure, until_then = nil, 0
    if units == 0 then
      redis.call('DEL', key)
    else
      local ends_at, level, length = ban.read(key, now)
      until_then = ends_at
      if given == 0 or now + units > ends_at then
        until_then = now + units
        failure = ban.write(key, until_then, level, math.max(units, given * length))
      end
    end
    return failure, until_then
  end

  -- begin bans a key because of a denial, at least until `admitted_from`: then all limits that have
  -- denied would admit. It returns 2, or 0 if Redis refuses the write and only the denial stands; and
  -- when the ban ends.
  function ban.begin(key, now, admitted_from, level)
    local levels, began = ban.levels, 2
    local next_level = math.min(level + 1, 2 ^ 30)
    local length = math.min(math.max(levels[math.min(next_level, #levels)], admitted_from - now), ban.longest)
    local until_then = now + length
    local failure = ban.write(key, until_then, next_level, length)
    if failure then began = 0 end
    return began, until_then
  end

  -- bars returns the later of two instants: `admitted_from`, and if a denial bans, that from which on the
  -- limit would admit what it has denied.
  function limit.bars(admitted_from, denial_bans, now, n, f, a, b, c, y)
    local later = admitted_from
    if denial_bans then
      local fits_from = limit.when(now, n, f, a, b, c, y)
      if fits_from > later then later = fits_from end
    end
    return later
  end

  -- bars_without_held is like bars, but evaluates again without the units that are held: a denial bans
  -- only if what is charged alone denies.
  function limit.bars_without_held(admitted_from, denial_bans, now, units, n, f, stored, key, record)
    local later, cost, part = admitted_from, n, f
    if denial_bans then
      if units > 0 then
        cost, part = limit.more(0, 0, units)
      end
      local admits, _, a, b, c, _, _, y = limit.evaluate(stored, now, cost, part, key, record == '' and 0 or 1)
      if not admits then
        local fits_from = limit.when(now, cost, part, a, b, c, y)
        if fits_from > later then later = fits_from end
      end
    end
    return later
  end

end

return bans
