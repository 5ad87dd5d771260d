
-- What hold.lua does with a limit. `duration` is that of its holds, and `queues` is true for a limit whose units cannot be held.
local record, changed
local admits, t, x, y, z, u, v, foreign -- what evaluate returned, of a call that decides

-- charge_at charges units at an instant, whether they fit or not.
local function charge_at(key, instant, units)
  local before = now
  now = instant
  local err = units > 0 and force(key, units) or nil
  now = before
  return err
end

-- close writes what has changed. The key is kept for as long as it is needed once everything held is charged.
local function close(key)
  local last, till = record.list[#record.list], expires or needed(key, t, x, y, z)
  return write(key, record, till, last and math.max(till or now, last[1]) + tail(record.held) or till or now)
end

-- open reads the key, and charges the holds that have expired.
local function open(key)
  now = started -- a call that failed may have left another
  record, changed, t, foreign, spent = load(key), false, nil, nil, spent + work
  local list = record.list
  if list[1] and list[1][1] <= now then
    while list[1] and list[1][1] <= now do
      local first = table.remove(list, 1)
      local err = charge_at(key, first[1], first[2])
      if err then return err end
      record.held, record.charged = record.held - first[2], first[1]
    end
    spent = spent + work
    return close(key)
  end
  if #list == 0 and record.charged + window <= now then record.charged = 0 end
end

-- decide returns whether n units are admitted, the instant, the Observation and the units held, or of a queue the largest
-- free place.
local function decide(key, n)
  local free
  admits, t, x, y, z, u, v, foreign, free = evaluate(key, cost(n + record.held))
  return admits, t, x, y, z, free or record.held
end

-- add_hold holds n units, for `lasts` if that is given. It returns the id of the holds and the expiry, by which the hold is found again. An expiry
-- is later than those that were charged already, although the clock may have stepped back.
local function add_hold(n, id, lasts)
  lasts = lasts or duration
  local step = math.max(1, math.floor(lasts / 6))
  local expiry = now + lasts
  expiry = math.max(expiry + (step - expiry % step) % step, record.charged + 1)
  if #record.list == 0 and record.charged == 0 then record.id = id end
  changed = true
  return record.id, hold(record, expiry, n)
end

-- act does what a call asks for, after it was decided whether all limits admit. It returns an error, or by what n units
-- are held. Of a queue that is the epoch, and then comes the largest free place.
local function act(key, op, all, n, m, a, b)
  local err, id, expiry, free
  if queues and op == '2' then op = '1' end
  if queues and op == '3' then op = m == 0 and '4' or '0' end
  if foreign and op ~= '0' then
    changed, err = true, replace(key, record)
    if not all then err = nil end
  end
  if err or op == '0' or op <= '2' and not all then
    -- nothing is charged or held
  elseif op == '1' then
    changed = true
    if record.held == 0 then err, free, id = charge(key, n, t, x, y, z, u, v) else err = charge_at(key, now, n) end
  elseif op == '2' then
    id, expiry = add_hold(n, m, a > 0 and a or nil)
  elseif op == '3' then
    changed = take(record, a, math.abs(b), n) -- it is negative if the hold is over by the clock of the process
    if not changed and (b <= now or record.id == a and b <= record.charged) then m = math.max(0, m - n) end
    changed = changed or m > 0
    err = charge_at(key, now, m)
  elseif op == '4' then
    changed = true
    err = refund(key, n, a, b)
  elseif op == '5' then
    changed = true
    clear(key, record)
    if #record.list == 0 then record.charged = 0 end
  elseif op == '6' and not queues and take(record, a, b, n) then
    id, expiry = add_hold(n, a)
  end
  if changed and not err then err = close(key) end
  return err, id, expiry, free
end

return { open = open, decide = decide, act = act }
