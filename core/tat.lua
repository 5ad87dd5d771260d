-- What gcra and leaky_bucket share: one instant as a string, 'FORM tat f L' or 'FORM tat f L T'. At
-- tat + f/q microseconds (the theoretical arrival time) the debt is paid, at L units per T.
-- Reads (t, w, f): the debt at t, clipped to the capacity. Arguments: see bucket.lua.

local function tat(form)
  local algorithm = { args = bucket.args }
  local pattern = '^' .. form .. ' (%d+) (%S+) (%d+) ?(%d*)$'

  local function debt(key, now, a)
    local ends, f, l, t = parse(key, pattern)
    if not ends then return 0, 0 end
    return bucket.at(key, now, ends, f, l, t, a)
  end

  local function save(key, now, w, f, a)
    store(key, string.format('%s %.0f', form, now + w) .. bucket.form(f, a), now + w + math.ceil(f))
  end

  function algorithm.read(key, now, a)
    local admits, w, f = bucket.admits(a, debt(key, now, a))
    return admits, now, w, f
  end

  function algorithm.charge(key, a, t, w, f)
    w, f = bucket.plus(a, w, f)
    save(key, t, w, f, a)
  end

  function algorithm.refund(key, now, a)
    local w, f = debt(key, now, a)
    if w + f == 0 then return end
    w, f = bucket.minus(a, w, f)
    if w + f == 0 then redis.call('DEL', key) else save(key, now, w, f, a) end
  end

  return algorithm
end
