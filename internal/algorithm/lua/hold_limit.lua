
-- What hold.lua does with a limit. `c` and `duration` are the positions of its constants and of the duration of its
-- holds in ARGV; `queues` is true for a limit whose units cannot be held.
local record, changed

-- charge_at charges units at an instant, whether they fit or not.
local function charge_at(key, instant, units)
  local before = now
  now = instant
  local err = units > 0 and force(key, c, scratch, units) or nil
  now = before
  return err
end

-- close writes what has changed.
local function close(key)
  if not changed then return end
  changed = false
  return write(key, record, function(expiry, units) charge_at(key, expiry, units) end, function() return needed(key, c, scratch) end)
end

-- open reads the key, and charges the holds that have expired.
local function open(key)
  record, changed = load(key), false
  while record.list[1] and record.list[1][1] <= now do
    local first = table.remove(record.list, 1)
    local err = charge_at(key, first[1], first[2])
    if err then return err end
    record.held, record.charged, changed = record.held - first[2], first[1], true
  end
  if #record.list == 0 and record.charged > 0 and record.charged + ARGV[c + 1] <= now then
    record.charged, changed = 0, true
  end
  return close(key)
end

-- decide returns whether n units are admitted, the instant, the Observation, the units held, and the value if it is
-- foreign.
local function decide(key, n)
  span(c, scratch, n + record.held)
  local admits, t, a, b, d, _, _, foreign = evaluate(key, c, scratch)
  return admits, t, a, b, d, record.held, foreign
end

local function add_charge(key, n)
  changed = true
  return charge_at(key, now, n)
end

-- add_hold holds n units. It returns the id of the holds and the expiry, by which the hold is found again. An expiry
-- is later than those that were charged already, although the clock may have stepped back.
local function add_hold(n, id)
  local step = math.max(1, math.floor(ARGV[duration] / 6))
  local expiry = now + ARGV[duration]
  expiry = math.max(expiry + (step - expiry % step) % step, record.charged + 1)
  if not format(record) then record.id = id end
  hold(record, expiry, n)
  changed = true
  return record.id, expiry
end

-- settle charges `actual` in place of n units held.
local function settle(key, n, actual, id, expiry)
  if take(record, id, expiry, n) then
    changed = true
  elseif record.id == id and expiry <= record.charged then
    actual = math.max(0, actual - n)
  end
  return add_charge(key, actual)
end

local function take_back(key, n, a, b)
  changed = true
  span(c, scratch, n)
  return refund(key, c, scratch, a, b)
end

-- renew holds n units for longer. It returns where they are held then, or nothing if they no longer were.
local function renew(n, id, expiry)
  if take(record, id, expiry, n) then return add_hold(n, id) end
end

local function reset(key)
  changed = true
  clear(key, record)
  if #record.list == 0 then record.charged = 0 end
end

return {
  queues = queues, open = open, decide = decide, add_charge = add_charge, add_hold = add_hold, settle = settle,
  take_back = take_back, renew = renew, reset = reset, close = close,
}
