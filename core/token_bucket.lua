-- token_bucket: KEYS[i] is a string, 'T1 last w f p q'. At the instant `last` (the newest seen) the
-- tokens missing from a full bucket would take w + f/q microseconds to refill, at p/q a token.
-- Reads (t, w, f): the debt at t. Arguments: see bucket.lua.

local token_bucket = { args = bucket.args }

function token_bucket.read(key, now, a)
  local last, w, f, p, q = parse(key, '^T1 (%d+) (%d+) (%S+) (%d+) (%d+)$')
  if not last then
    local admits = bucket.admits(0, 0, a)
    return admits, now, 0, 0
  end
  local t = math.max(now, last)
  w, f = bucket.at(key, t, last + w, f, p, q, a)
  local admits
  admits, w, f = bucket.admits(w, f, a)
  return admits, t, w, f
end

function token_bucket.charge(key, a, t, w, f)
  w, f = bucket.plus(w, f, a)
  local form = string.format('T1 %.0f %.0f %.17g ', t, w, f) .. ARGV[a + 4] .. ' ' .. ARGV[a + 5]
  store(key, form, t + w + math.ceil(f))
end
