-- token_bucket: KEYS[i] is a string, 'T1 last w f L' or 'T1 last w f L T'. At the instant `last` (the
-- newest seen) the tokens missing from a full bucket take w + f/q microseconds to refill, at L per T.
-- Reads (t, w, f): the debt at t, clipped to the capacity. Arguments: see bucket.lua.

local token_bucket = { args = bucket.args }

local function missing(key, now, a)
  local last, w, f, l, length = parse(key, '^T1 (%d+) (%d+) (%S+) (%d+) ?(%d*)$')
  if not last then return now, 0, 0 end
  local t = math.max(now, last)
  return t, bucket.at(key, t, last + w, f, l, length, a)
end

local function save(key, a, t, w, f)
  store(key, string.format('T1 %.0f %.0f', t, w) .. bucket.form(f, a), t + w + math.ceil(f))
end

function token_bucket.read(key, now, a)
  local t, w, f = missing(key, now, a)
  local admits
  admits, w, f = bucket.admits(a, w, f)
  return admits, t, w, f
end

function token_bucket.charge(key, a, t, w, f)
  save(key, a, t, bucket.plus(a, w, f))
end

function token_bucket.refund(key, now, a)
  local t, w, f = missing(key, now, a)
  if w + f == 0 then return end
  w, f = bucket.minus(a, w, f)
  if w + f == 0 then redis.call('DEL', key) else save(key, a, t, w, f) end
end
