
-- What hold.lua does with a limit. `duration` is that of its holds, and `queues` is true for a limit whose units cannot be held.
local changed
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
  local till, last = expires or needed(key, t, x, y, z), first
  if list then
    last = list[#list - 1]
  elseif rest ~= '' then
    last = math.min(tonumber(string.match(string.sub(rest, -32), ' (%d+):%d+$') or '') or latest, latest)
  end
  return write(key, list and fold(id, charged, held, list) or text, till, held > 0 and math.max(till or now, last) + tail(held) or till or now)
end

-- open reads the key, and charges the holds that have expired.
local function open(key)
  now = started -- a call that failed may have left another
  changed, t, foreign, list, expires, spent = false, nil, nil, nil, nil, spent + work
  load(key)
  if held > 0 and first <= now then
    list = unfold(held, first, rest)
    while list[1] and list[1] <= now do
      local expiry, units = table.remove(list, 1), table.remove(list, 1)
      local err = charge_at(key, expiry, units)
      if err then return err end
      held, charged = held - units, expiry
    end
    spent = spent + work
    return close(key)
  end
  if held == 0 and charged > 0 and charged + window <= now then charged, list = 0, {} end
end

-- decide returns whether n units are admitted, the instant, the Observation and the units held, or of a queue the largest
-- free place.
local function decide(key, n)
  local largest
  admits, t, x, y, z, u, v, foreign, largest = evaluate(key, cost(n + held))
  return admits, t, x, y, z, largest or held
end

-- hold holds n units, for `lasts`. It returns the id of the holds and the expiry, by which the hold is found again. An expiry
-- is later than those that were charged already, although the clock may have stepped back. In a full list it is another's.
local function hold(n, new, lasts)
  local step = math.max(1, math.floor(lasts / 6))
  local expiry = now + lasts
  expiry = math.max(expiry + (step - expiry % step) % step, charged + 1)
  if held == 0 and charged == 0 then id = new end
  list = held == 0 and { expiry, 0 } or list or unfold(held, first, rest)
  held, changed = held + n, true
  local i = 1
  while list[i] and list[i] < expiry do i = i + 2 end
  if #list >= 2 * most_holds then
    i = math.min(i, #list - 1)
  elseif list[i] ~= expiry then
    table.insert(list, i, 0)
    table.insert(list, i, expiry)
  end
  list[i + 1] = list[i + 1] + n
  return id, list[i]
end

-- drop takes n units off the hold of a handle. It returns nothing if there is none.
local function drop(of, expiry, n)
  if of ~= id or held == 0 then return end
  list = list or unfold(held, first, rest)
  for i = 1, #list, 2 do
    if list[i] == expiry and list[i + 1] >= n then
      held = held - n
      list[i + 1] = list[i + 1] - n
      if held == 0 then
        list = {}
      elseif list[i + 1] == 0 then
        table.remove(list, i)
        table.remove(list, i)
      end
      return true
    end
  end
end

-- act does what a call asks for, after it was decided whether all limits admit. It returns an error, or by what n units
-- are held. Of a queue that is the epoch, and then comes the largest free place.
local function act(key, op, all, n, m, a, b)
  local err, handle, expiry, largest
  if queues and op == '2' then op = '1' end
  if queues and op == '3' then op = m == 0 and '4' or '0' end
  if foreign and op ~= '0' then
    changed, err = true, replace(key)
    if not all then err = nil end
  end
  if op <= '2' and not all then op = '0' end
  if err then
    return err
  elseif op == '1' then
    changed = true
    if held == 0 then err, largest, handle = charge(key, n, t, x, y, z, u, v) else err = charge_at(key, now, n) end
  elseif op == '2' then
    handle, expiry = hold(n, m, a > 0 and a or duration)
  elseif op == '3' then
    changed = drop(a, math.abs(b), n) -- it is negative if the hold is over by the clock of the process
    if not changed and (b <= now or id == a and b <= charged) then m = math.max(0, m - n) end
    changed = changed or m > 0
    err = charge_at(key, now, m)
  elseif op == '4' then
-- REFUND
    changed, err = true, refund(key, n, a, b)
  elseif op == '5' then
    changed = true
    clear(key)
    if held == 0 then charged, list = 0, {} end
  elseif op == '6' and not queues and drop(a, b, n) then
    handle, expiry = hold(n, a, duration)
  end
  if changed and not err then err = close(key) end
  return err, handle, expiry, largest
end

return { open = open, decide = decide, act = act }
