-- bans.lua has the functions with which decide.lua bans keys. A call has a key for the ban of each limiter
-- that has bans, behind the keys of all limits. There is more than one such key only if several limiters with
-- bans decide together.
--
-- Stored: a string, 'X1 ends level lasts': the instant at which the ban ends; how many denials have banned the
-- key since its bans were last forgotten; and how long this ban lasts, in microseconds. The bans of the key are
-- forgotten if no other ban begins before `ends` + `lasts`. If operation '8' with `given` 1 has replaced a
-- longer ban that would have ended sooner, `lasts` stays, so that the level is not forgotten sooner.
-- Argument: 1 if a denial bans, otherwise 0. A call has one such argument for each ban.
-- Operation '8', only for limiters with bans: it bans for as many microseconds as the call has units. With 0
-- units it ends the ban and forgets its level. If `given` is 1, a ban that ends later stays as it is.
-- Replies, behind the replies of all limits, for each ban: 0, 1 or 2; the instant of the decision; and the instant at
-- which the ban ends. For a decision, 0 means that the key is not banned, 1 that it was banned before the call, and 2
-- that the call has begun the ban by its denial. After 0, the last number means nothing. All other operations reply
-- 0, because they are carried out even if the key is banned.

local function bans(limit, ban)
  -- read returns the end of the ban that is stored at a key, its level, and how long it lasts; or zeros if no
  -- ban is stored, or if it is forgotten. read deletes a foreign value. Otherwise a foreign value without a TTL
  -- would stay until the next ban, because nothing else writes to the key. read raises an error if Redis cannot
  -- read the key, or if the value has an unknown version.
  function ban.read(key, now)
    local value, ends_at, rank, length = redis.pcall('GET', key), 0, 0, 0
    local foreign = value
    if value and value.err then
      if not string.find(value.err, 'WRONGTYPE', 1, true) then error(value.err) end
    elseif value then
      local ends, level, lasts = string.match(#value <= longest and value or '', '^X1 (%d+) (%d+) (%d+)$')
      ends, level, lasts = tonumber(ends), tonumber(level), tonumber(lasts)
      if ends and level and lasts and ends <= latest and level <= 2 ^ 30 and lasts <= ahead then
        foreign = nil -- a ban that is forgotten is not foreign: if the clock steps back, it counts again
        if now < ends + lasts then ends_at, rank, length = ends, level, lasts end
      elseif not ends then
        limit.check_version(value)
      end
    end
    if foreign then redis.pcall('DEL', key) end
    return ends_at, rank, length
  end

  -- write stores a ban. It returns the error of Redis, or nil.
  function ban.write(key, ends_at, level, length)
    local text = string.format('X1 ' .. whole .. ' %d ' .. whole, ends_at, level, length)
    local done = redis.pcall('SET', key, text, 'PX', string.format(whole, 2 * length / 1000 + grace + 1))
    return done.err
  end

  -- block carries out operation '8'. It returns the error of Redis or nil, and the instant at which the ban ends.
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

  -- begin bans a key because of a denial. The ban does not end before `admitted_from`, the instant from which
  -- the limits that have denied would admit, unless it would be longer than ban.longest. begin returns 2, or 0 if
  -- Redis refuses the write: the call is then denied without a ban. It also returns the end of the ban.
  function ban.begin(key, now, admitted_from, level)
    local levels, began = ban.levels, 2
    local next_level = math.min(level + 1, 2 ^ 30)
    local length = math.min(math.max(levels[math.min(next_level, #levels)], admitted_from - now), ban.longest)
    local until_then = now + length
    local failure = ban.write(key, until_then, next_level, length)
    if failure then began = 0 end
    return began, until_then
  end

  -- bars returns the later one of two instants: `admitted_from`, and the instant from which this limit would
  -- admit what it has denied. If a denial does not ban, it returns `admitted_from`.
  function limit.bars(admitted_from, denial_bans, now, n, f, a, b, c, y)
    local later = admitted_from
    if denial_bans then
      local fits_from = limit.when(now, n, f, a, b, c, y)
      if fits_from > later then later = fits_from end
    end
    return later
  end

  -- bars_without_held is like bars, but first evaluates again without the held units. If the limit would admit
  -- without them, bars_without_held returns `admitted_from`: a denial that is only due to held units bans nothing.
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
