-- What decide.lua does with a limit if a call is more than a plain decision on a key without holds:
-- `look` finds out what there is, and `act` does what the call asks for. Both are functions of each
-- limit whose units are charged; slots have their own.
--
-- Stored: the record of the holds of a limit, behind the string of the algorithm, or as the member of
-- its log with the score +inf. It is '|H1 id charged held first', ' expiry:units' for each hold but
-- the first, and of a bucket '@count/period', the fastest rate at which they were reserved. `id`
-- tells these holds from those of another time, after the state was lost; `charged` is the latest
-- expiry that was charged; `held` is the sum of all units, and `first` the first expiry, or 0. All
-- units that expire at one instant are together, in order of expiry. There are at most 64 of them, 128
-- numbers: about eight for each duration of holds in use. A text that is longer than they can be is
-- foreign, and so is one with more units than any limit has.
-- Decisions read the head alone, so it decides: where what follows contradicts it, all units expire
-- at `first`.

local head = '|H1 ' .. whole .. ' ' .. whole .. ' ' .. whole .. ' ' .. whole

-- parse returns the head of a record, the text that follows and the rate, '' if there is none; or
-- nothing if the record is foreign.
function parse(text)
  if #text > 32 * 64 + 100 then return end
  local id, charged, held, first, rest, rate = string.match(text, '^|H1 (%d+) (%d+) (%d+) (%d+)([ :%d]*)@?([/%d]*)$')
  if rate and rate ~= '' and not (#rate < 30 and string.find(rate, '^[1-9]%d*/[1-9]%d*$')) then return end
  id, charged, held, first = tonumber(id or ''), tonumber(charged or ''), tonumber(held or ''), tonumber(first or '')
  if not (id and charged and held and first) then return end -- miniredis: nil for a number of 20 digits
  if id >= 2 ^ 53 or charged >= latest or held > 2 ^ 30 or first > latest then return end
  if held > 0 and first > charged or held == 0 and first == 0 and rest == '' then return id, charged, held, first, rest, rate end
end

-- unfold returns the holds of a record in one list: expiry, units, expiry, units ...
function unfold(held, first, rest)
  local list = held > 0 and { first, held } or {}
  if rest == '' then return list end
  for expiry, units in string.gmatch(rest, ' (%d+):(%d+)') do
    expiry, units = tonumber(expiry) or 2 ^ 53, tonumber(units) or 0
    list[2] = list[2] - units
    if expiry <= list[#list - 1] or expiry > latest or units < 1 or list[2] < 1 or #list >= 128 then return { first, held } end
    list[#list + 1] = expiry
    list[#list + 1] = units
  end
  return list
end

-- fold returns the text of a record, '' if there is nothing to know.
function fold(id, charged, held, list, rate)
  if held == 0 and charged == 0 then return '' end
  local text = string.format(head, id, charged, held, list[1] or 0)
  for i = 3, #list, 2 do text = text .. string.format(' ' .. whole .. ':' .. whole, list[i], list[i + 1]) end
  if held > 0 and rate ~= '' then text = text .. '@' .. rate end
  return text
end

-- speed returns the units per microsecond of a rate, 'count/period'.
function speed(rate)
  local count, per = string.match(rate, '^(%d+)/(%d+)$')
  return count / per
end

-- fastest returns the faster of two rates.
function fastest(rate, other)
  if rate == other or speed(rate) > speed(other) then return rate end
  return other
end

-- operation returns what an operation is for a limit, if that is another.
function limit.operation(op)
  return op
end

-- mistyped returns a foreign value for the error of reading a key of another type, and raises any
-- other error.
function limit.mistyped(failure)
  if not string.find(failure, 'WRONGTYPE', 1, true) then error(failure) end
  return 'foreign'
end

-- check_version raises an error for a foreign value of a version that this one does not know: that is
-- of another process, which runs beside this one. If it counted as nothing, each of them would begin
-- afresh whenever it comes after the other. So it stays: docs/stored.md.
function limit.check_version(wrong)
  for version in string.gmatch('|' .. wrong, '|(%u%d%d?) ') do
    if not string.find(script.versions, version, 1, true) then
      error('a newer version of redislimit has stored ' .. version .. ' at this key: upgrade this process, or reset the key;', 0)
    end
  end
end

-- replace makes room for a log at a key with a foreign value, and for its record, which is to be
-- stored again. It returns the error of Redis.
function limit.replace(key)
  local done = redis.pcall('SET', key, '', 'PX', 1000)
  if not done.err then redis.call('DEL', key) end
  return done.err
end

-- close writes what has changed: what is charged (`stored`, if that is a string), and the record. The
-- former is needed until `needed_until`, or not at all if that is nil. `written` is the record that is
-- at the key. close returns the error of Redis and the record.
function limit.close(key, stored, now, needed_until, written, own, last_charged, sum, soonest, others, rate, holds)
  local last, record, problem = soonest, written, nil
  if holds then
    last = holds[#holds - 1]
    record = fold(own, last_charged, sum, holds, rate)
  elseif others ~= '' then
    last = math.min(tonumber(string.match(string.sub(others, -32), ' (%d+):%d+$') or '') or latest, latest)
  end
  -- The key is kept until all held units have been charged, and what is charged then is not needed any
  -- more.
  if sum > 0 then
    local longer
    longer = limit.tail(sum, rate)
    last = math.max(needed_until or now, last) + longer
  else
    last = needed_until or now
  end
  if not limit.stores_log then
    -- Beside a record a window that has ended stays, too: if the clock steps back, it is open again.
    if needed_until or record ~= '' then
      local ttl = string.format(whole, math.max(0, last - now) / 1000 + grace + 1)
      problem = redis.pcall('SET', key, (stored or '') .. record, 'PX', ttl).err
    else
      redis.call('DEL', key)
    end
  else
    if record ~= written then
      local added = record ~= '' and redis.pcall('ZADD', key, '+inf', record)
      if type(added) == 'table' then problem = added.err end
      if not problem and written ~= '' then redis.call('ZREM', key, written) end
    end
    -- An instant that has passed would remove the key at once, before what follows in this call.
    if not problem and (written ~= '' or record ~= '') then
      redis.call('PEXPIREAT', key, string.format(whole, math.max(last, now + 100000) / 1000 + 1))
    end
  end
  return problem, record
end

-- look reads the key, and charges each hold that has expired at the instant when it did. A Settle and
-- a renewal then take their units off their hold: `taken` is whether there was one. At last the
-- algorithm is asked on the units of a decision and all held ones together. `ask` is how many units
-- that is, beside the cost of a plain decision; and for a Settle, how many it charges.
function limit.look(key, value, now, op, plain, decides, units, given, n, f, handle, expiry, err)
  local stored, written, records, failure, strange = value, '', 0, err, nil
  if limit.stores_log then
    stored = stored or redis.pcall('ZRANGE', key, '-1', '-1', 'WITHSCORES')
    if stored.err then
      strange = limit.mistyped(stored.err)
    end
    if stored[2] == 'inf' then written = stored[1] end
  else
    if stored == nil then stored = redis.pcall('GET', key) end
    if stored and stored.err then
      stored = limit.mistyped(stored.err)
    end
    local bar = stored and string.find(stored, '|', 1, true)
    if bar then written = string.sub(stored, bar) end
  end
  local own, last_charged, sum, soonest, others, rate = 0, 0, 0, 0, '', ''
  if written ~= '' then
    own, last_charged, sum, soonest, others, rate = parse(written)
    if own then
      if not limit.drains then rate = '' end
      if limit.stores_log then
        records = 1
        stored = redis.pcall('ZRANGE', key, '-2', '-2', 'WITHSCORES')
      else
        stored = #stored > #written and string.sub(stored, 1, -1 - #written)
      end
    else
      written, own, last_charged, sum, soonest, others, rate = '', 0, 0, 0, 0, '', ''
    end
  end
  if limit.drains and sum > 0 and rate == '' then
    rate = limit.pace()
  end

  local holds, needed_until = nil, nil
  if sum == 0 and last_charged > 0 and last_charged + limit.window <= now then last_charged, holds = 0, {} end
  if sum > 0 and soonest <= now and not failure then
    holds = unfold(sum, soonest, others)
    while holds[1] and holds[1] <= now and not failure do
      local instant, due = table.remove(holds, 1), table.remove(holds, 1)
      local _, t, a, b, c, foreign, x, y = limit.evaluate(stored, instant, 0, 0, key, records)
      if foreign and op ~= '5' then
        limit.check_version(foreign)
      end
      if foreign and limit.stores_log then
        failure = limit.replace(key)
        records, written = 0, ''
      end
      local cost, part = limit.bound(due, a)
      if not failure then
        local text, lasts = limit.charge(instant, cost, part, t, a, b, c, x, y, key, records)
        if limit.stores_log then
          stored = redis.pcall('ZRANGE', key, -1 - records, -1 - records, 'WITHSCORES')
        else
          local replaces, needs
          replaces, needs = limit.forced(stored, instant, due, a, b, c, rate, true)
          if replaces then text, lasts = replaces, needs end
          stored = text
        end
        needed_until = instant + lasts
      end
      sum, last_charged = sum - due, instant
      spent = spent + 10 -- about how many microseconds it takes
    end
    if not failure then
      failure, written = limit.close(key, stored, now, needed_until, written, own, last_charged, sum, soonest, others, rate, holds)
      if limit.stores_log then records = written == '' and 0 or 1 end
    end
  end

  local asks, found = decides and (plain and sum or units + sum) or 0, false
  if handle == own and sum > 0 and (op == '3' or op == '6') then
    holds = holds or unfold(sum, soonest, others)
    for i = 1, #holds, 2 do
      if holds[i] == math.abs(expiry) and holds[i + 1] >= units then
        sum, found = sum - units, true
        holds[i + 1] = holds[i + 1] - units
        if sum == 0 then
          holds = {}
        elseif holds[i + 1] == 0 then
          table.remove(holds, i)
          table.remove(holds, i)
        end
        break
      end
    end
  end
  if op == '3' then
    asks = given
    if not found and (expiry <= now or own == handle and expiry <= last_charged) then asks = math.max(0, given - units) end
  end
  local whole_cost, part_cost = n, f
  if decides and asks > 0 then
    whole_cost, part_cost = limit.more(n, f, asks)
  end
  local admits, t, a, b, c, foreign, x, y, largest = limit.evaluate(stored, now, whole_cost, part_cost, key, records)
  foreign = foreign or strange
  if foreign and op ~= '5' then
    limit.check_version(foreign)
  end
  return failure, admits, t, a, b, c, sum, foreign, x, y, largest, stored, written, records, own, last_charged, soonest, others, rate, holds,
    needed_until, asks, found
end

-- act does what the call asks for, on what look has found. It returns the error of Redis; the handle
-- and the expiry of a hold that it has begun, or the epoch of a place in a queue; and the largest free
-- place of a queue.
function limit.act(key, value, now, op, plain, all, units, given, n, f, handle, expiry, duration, t, a, b, c, held, foreign, x, y, largest, record,
    records, id, charged, first, rest, pace, list, till, ask, taken)
  local failure, hold_id, hold_end, most_units = nil, nil, nil, nil
  local stored, written, logs, own, last_charged, sum, rate, holds = value, record, records, id, charged, held, pace, list
  local needed_until, debt, parts, places = till, a, b, y
  local charges, clears, changed, forces, cost, part = false, false, taken, false, n, f
  if foreign and (ask > 0 or op == '1' or op == '2') then -- who ends what is not there leaves it
    changed = true
    if limit.stores_log then
      failure = limit.replace(key)
      if failure then
        if not all then failure = nil end
      else
        holds = holds or unfold(sum, first, rest)
        written, logs = '', 0
      end
    end
    stored = nil
  end
  -- Where a decision is denied nothing is charged. If a foreign value was replaced, that is written below.
  if not failure and all then
    if op == '1' then
      charges = (plain and n + f or units) > 0 or sum == 0
      if not plain then
        cost, part = limit.more(0, 0, units)
      end
    elseif op == '2' or op == '6' and taken then
      -- An expiry is later than any that was charged, also after a step back of the clock, and a
      -- multiple of a sixth of the duration: so there are few. If the list is full, the units join a
      -- hold that it has. There are none of 0 units: such a call only evaluates.
      local step, ends, i = math.max(1, math.floor(duration / 6)), now + duration, 1
      ends = math.max(ends + (step - ends % step) % step, last_charged + 1)
      if sum == 0 and last_charged == 0 then own = op == '2' and given or handle end
      if limit.drains then
        local present
        present = limit.pace()
        rate = sum == 0 and present or fastest(rate, present)
      end
      holds = sum == 0 and { ends, 0 } or holds or unfold(sum, first, rest)
      sum, changed = sum + units, true
      while holds[i] and holds[i] < ends do i = i + 2 end
      if #holds >= 128 then -- of 64 holds
        i = math.min(i, #holds - 1)
      elseif holds[i] ~= ends then
        table.insert(holds, i, 0)
        table.insert(holds, i, ends)
      end
      holds[i + 1] = holds[i + 1] + units
      hold_id, hold_end = own, holds[i]
    elseif op == '3' and ask > 0 then
      charges, forces = true, true
      cost, part = limit.bound(ask, a)
    elseif op == '4' then
      changed = not foreign
      charges, clears, cost, part, places = limit.refund(units, handle, expiry, now, a, b, c, x, y, key)
    elseif op == '5' then
      changed, clears = true, true
      if sum == 0 then last_charged, holds = 0, {} end
    end
  end
  if clears then
    stored, needed_until, debt, parts = nil, nil, 0, 0
    if limit.stores_log then
      if logs == 0 then redis.call('DEL', key) else redis.call('ZREMRANGEBYRANK', key, 0, -2) end
    end
  end
  if charges then
    changed = true
    local text, lasts, broken, left, epoch = limit.charge(now, cost, part, t, debt, parts, c, x, places, key, logs)
    if limit.stores_log then failure = broken end
    if forces and limit.drains and c > 0 then
      local replaces, needs = limit.forced(value, now, ask, a, b, c, rate, false)
      if replaces then text, lasts = replaces, needs end
    end
    stored, needed_until = text, now + lasts
    if limit.delays and op == '1' then hold_id, most_units = epoch, left or largest end
  end
  if changed and not failure then
    if not needed_until then
      needed_until = limit.needed(now, debt, parts, c, y)
    end
    failure = limit.close(key, stored, now, needed_until, written, own, last_charged, sum, first, rest, rate, holds)
  end
  return failure, hold_id, hold_end, most_units
end
