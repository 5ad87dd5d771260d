-- holds.lua has the functions with which the slow branch of decide.lua handles a limit: look finds out
-- what is stored, and act carries out the call. They are the same for every algorithm that charges its
-- units. Slots are never charged, so in_flight.lua has a look and an act of its own.
--
-- Stored: a record of the holds of a limit. It stands behind the string of the algorithm. In a log, it is the
-- member with the score +inf. The record is
--   '|H1 id last_charged held first', then ' expiry:units' for each hold but the first, and then '@count/period'
-- `id` identifies the holds: if the state of the key is lost, later holds have another id. `last_charged` is the
-- latest expiry of a hold that has been charged. It shows a late settlement that its hold was charged, even if the
-- clock has since stepped back. It becomes 0 when nothing is held and `limit.window` has passed since, and is lost
-- when the key expires. `held` is the sum of all held units. `first` is the expiry of the first hold, or 0. All
-- units that expire at the same instant are one hold. The holds are in the order of their expiries. There are at
-- most 64 of them, and usually about eight for each duration of holds in use. 'count/period' is the fastest rate
-- at which the held units were reserved. Only buckets have it.
-- A record is foreign if no script can have written it, such as one that is longer than 64 holds can be, or has more
-- units than any limit allows. There is one exception: if the list of holds contradicts `held` or `first`, these two
-- count, because most calls read only them, and all held units then expire at `first`.

local record_head = '|H1 ' .. whole .. ' ' .. whole .. ' ' .. whole .. ' ' .. whole

-- parse returns the id, last_charged, held and first of a record, the text of the holds behind them (`rest`), and
-- the rate or ''. It returns nothing if the record is foreign.
function parse(text)
  if #text > 32 * 64 + 100 then return end
  local id, last_charged, held, first, rest, rate = string.match(text, '^|H1 (%d+) (%d+) (%d+) (%d+)([ :%d]*)@?([/%d]*)$')
  if rate and rate ~= '' and not (#rate < 30 and string.find(rate, '^[1-9]%d*/[1-9]%d*$')) then return end
  id, last_charged, held, first = tonumber(id or ''), tonumber(last_charged or ''), tonumber(held or ''), tonumber(first or '')
  if not (id and last_charged and held and first) then return end -- miniredis: nil for a number of 20 digits
  if id >= 2 ^ 53 or last_charged >= latest or held > 2 ^ 30 or first > latest then return end
  if held > 0 and first > last_charged or held == 0 and first == 0 and rest == '' then return id, last_charged, held, first, rest, rate end
end

-- unfold returns the holds of a record as one list: expiry, units, expiry, units ... If `rest` contradicts `held` or
-- `first`, all units are in the first hold.
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

-- fold returns the text of a record, or '' if there is nothing to remember.
function fold(id, last_charged, held, list, rate)
  if held == 0 and last_charged == 0 then return '' end
  local text = string.format(record_head, id, last_charged, held, list[1] or 0)
  for i = 3, #list, 2 do text = text .. string.format(' ' .. whole .. ':' .. whole, list[i], list[i + 1]) end
  if held > 0 and rate ~= '' then text = text .. '@' .. rate end
  return text
end

-- speed returns how many units drain in a microsecond at a rate 'count/period'.
function speed(rate)
  local count, per = string.match(rate, '^(%d+)/(%d+)$')
  return count / per
end

-- fastest returns the faster one of two rates 'count/period'.
function fastest(rate, second)
  if rate == second or speed(rate) > speed(second) then return rate end
  return second
end

local function holds(limit)
  limit.stores_log = false -- whether the algorithm stores a sorted set with an entry for each charge
  limit.drains = false -- whether its units drain at a rate: held units then keep the rate at which they were reserved
  limit.delays = false -- whether its units are places in a queue, so that an admitted request may have to wait

  -- task returns the operation that this limit carries out for an operation of the call, or '9' if it does nothing.
  function limit.task(op, _)
    return op
  end

  -- check does nothing. A limit that has something to check has a check of its own.
  function limit.check(_)
  end

  -- pace returns the rate 'count/period' at which the units of a limit drain. Only buckets have a pace and a
  -- forced of their own.
  function limit.pace()
    return ''
  end

  -- forced is called after units were charged whether they fit or not. If the stored debt drains at another rate
  -- than the rate of the limit from then on, forced returns the text to store instead of the text that charge has
  -- returned, and for how long it is needed. Otherwise it returns nil.
  function limit.forced()
    return nil, nil
  end

  -- mistyped takes the error of a command that has read a key. If the key has another type, mistyped returns a
  -- string that counts as a foreign value. Otherwise it raises the error.
  function limit.mistyped(failure)
    if not string.find(failure, 'WRONGTYPE', 1, true) then error(failure) end
    return 'foreign'
  end

  -- check_version raises an error if a foreign value has a version that this script does not know. Such a value was
  -- stored by a newer process that uses the same key. If it counted as no value, each of the two processes would
  -- forget what the other one has charged. So the value stays: see docs/stored.md.
  function limit.check_version(value)
    for version in string.gmatch('|' .. value, '|(%u%d%d?) ') do
      if not string.find(script.versions, version, 1, true) then
        error('a newer version of redislimit has stored ' .. version .. ' at this key: upgrade this process, or reset the key;', 0)
      end
    end
  end

  -- replace removes a foreign value from the key of a log, and with it a record of holds, which the caller must store
  -- again. Its first write is one that Redis refuses if its memory is full. replace returns the error of Redis or nil.
  function limit.replace(key)
    local done = redis.pcall('SET', key, '', 'PX', 1000)
    if not done.err then redis.call('DEL', key) end
    return done.err
  end

  -- close writes a changed value and record to the key, and sets its TTL. `stored` is the text of the algorithm without
  -- the record. (A log has already written its charges.) It is needed until `needed_until`, or not at all if that is
  -- nil. `record` is the record that is stored at the key. `list` has the holds that the key has now, in the form of
  -- unfold, or is nil if they have not changed. close returns the error of Redis or nil, and the record that is stored
  -- afterwards.
  function limit.close(key, stored, now, needed_until, record, id, last_charged, held, first, rest, rate, list)
    local last, next_record, failure = first, record, nil
    if list or held == 0 and last_charged == 0 then
      last = list and list[#list - 1]
      next_record = fold(id, last_charged, held, list, rate)
    elseif rest ~= '' then
      last = math.min(tonumber(string.match(string.sub(rest, -32), ' (%d+):%d+$') or '') or latest, latest)
    end
    -- The key is kept until all held units have been charged, and until their charges are not needed any more.
    if held > 0 then
      local longer = limit.tail(held, rate)
      last = math.max(needed_until or now, last) + longer
    else
      last = needed_until or now
    end
    if not limit.stores_log then
      -- If there is a record, `stored` is written even if it is a window that has ended: if the clock steps back, the
      -- window is open again.
      if needed_until or next_record ~= '' then
        local ttl = string.format(whole, math.max(0, last - now) / 1000 + grace + 1)
        failure = redis.pcall('SET', key, (stored or '') .. next_record, 'PX', ttl).err
      else
        redis.call('DEL', key)
      end
    else
      if next_record ~= record then
        local added = next_record ~= '' and redis.pcall('ZADD', key, '+inf', next_record)
        if type(added) == 'table' then failure = added.err end
        if not failure and record ~= '' then redis.call('ZREM', key, record) end
      end
      -- An instant in the past would remove the key at once, but this call may still write to it.
      if not failure and (record ~= '' or next_record ~= '') then
        redis.call('PEXPIREAT', key, string.format(whole, math.max(last, now + 100000) / 1000 + 1))
      end
    end
    return failure, next_record
  end

  -- look reads the key and charges the holds that have expired, each at the instant at which it expired. Then it
  -- evaluates the limit. If the call is a decision, look evaluates its units and all held units together, otherwise a
  -- cost of 0. look returns the error of Redis or nil; the results of evaluate; `stored`, the value of the algorithm
  -- without the record; and the record and its parts. `value` is the value that the fast branch has read, or nil. `n`
  -- and `f` are the cost of a plain decision, and `units` is the cost of another call.
  function limit.look(key, value, now, task, units, n, f)
    local stored, record, records, failure, strange = value, '', 0, nil, nil
    if limit.stores_log then
      stored = stored or redis.pcall('ZRANGE', key, '-1', '-1', 'WITHSCORES')
      if stored.err then
        strange = limit.mistyped(stored.err)
      end
      if stored[2] == 'inf' then record = stored[1] end
    else
      if stored == nil then stored = redis.pcall('GET', key) end
      if stored and stored.err then
        stored = limit.mistyped(stored.err)
      end
      local bar = stored and string.find(stored, '|', 1, true)
      if bar then record = string.sub(stored, bar) end
    end
    local id, last_charged, held, first, rest, rate = 0, 0, 0, 0, '', ''
    if record ~= '' then
      id, last_charged, held, first, rest, rate = parse(record)
      if id then
        if not limit.drains then rate = '' end
        if limit.stores_log then
          records = 1
          stored = redis.pcall('ZRANGE', key, '-2', '-2', 'WITHSCORES')
        else
          stored = #stored > #record and string.sub(stored, 1, -1 - #record)
        end
      else
        record, id, last_charged, held, first, rest, rate = '', 0, 0, 0, 0, '', ''
      end
    end
    if limit.drains and held > 0 and rate == '' then
      rate = limit.pace()
    end

    if held == 0 and last_charged > 0 and last_charged + limit.window <= now then last_charged = 0 end
    if held > 0 and first <= now then
      local list, needed_until = unfold(held, first, rest), nil
      while list[1] and list[1] <= now and not failure do
        local instant, due = table.remove(list, 1), table.remove(list, 1)
        local _, t, a, b, c, foreign, x, y = limit.evaluate(stored, instant, 0, 0, key, records)
        if foreign and task ~= '5' then
          limit.check_version(foreign)
        end
        if foreign and limit.stores_log then
          failure = limit.replace(key)
          records, record = 0, ''
        end
        local cost, part = limit.bound(due, a)
        if not failure then
          local text, lasts = limit.charge(instant, cost, part, t, a, b, c, x, y, key, records)
          if limit.stores_log then
            stored = redis.pcall('ZRANGE', key, -1 - records, -1 - records, 'WITHSCORES')
          else
            local at_other_rate, other_lasts = limit.forced(stored, instant, due, a, b, c, rate, true)
            if at_other_rate then text, lasts = at_other_rate, other_lasts end
            stored = text
          end
          needed_until = instant + lasts
        end
        held, last_charged = held - due, instant
        spent = spent + 10 -- about how many microseconds a charge takes
      end
      if not failure then
        failure, record = limit.close(key, stored, now, needed_until, record, id, last_charged, held, first, rest, rate, list)
        if limit.stores_log then records = record == '' and 0 or 1 end
        first, rest = 0, ''
        if held > 0 then id, last_charged, held, first, rest, rate = parse(record) end
      end
    end

    local cost, part = n, f
    if task <= '2' and units + held > 0 then
      cost, part = limit.more(n, f, units + held)
    end
    local admits, t, a, b, c, foreign, x, y = limit.evaluate(stored, now, cost, part, key, records)
    foreign = foreign or strange
    if foreign and task ~= '5' then
      limit.check_version(foreign)
    end
    return failure, admits, t, a, b, c, foreign, x, y, stored, record, id, last_charged, held, first, rest, rate
  end

  -- act carries out the call. Its parameters from `t` on are results of look. `all` says whether all limits admit; if
  -- not, act only removes a foreign value. act returns the error of Redis or nil; the id and the expiry of a hold that
  -- has begun; and nil. For a queue that was charged, the last three results are the epoch, nil, and the largest free
  -- place that is left, or nil if there are no free places.
  function limit.act(key, now, task, all, units, given, n, f, handle, expiry, duration,
      t, a, b, c, foreign, x, y, stored, record, id, last_charged, held, first, rest, rate)
    local failure, hold_id, hold_end, largest, list, needed_until = nil, nil, nil, nil, nil, nil
    local next_stored, next_id, next_charged, next_held, next_rate = stored, id, last_charged, held, rate
    local debt, parts, places, cost, part = a, b, y, n, f
    local written, changed, charges, clears, taken = record, false, false, false, false -- `written` is the record that is stored at the key

    -- A settlement and a renewal remove their units from their hold.
    if (task == '3' or task == '6') and handle == id and held > 0 then
      list = unfold(held, first, rest)
      for i = 1, #list, 2 do
        if list[i] == math.abs(expiry) and list[i + 1] >= units then
          taken, changed, next_held = true, true, held - units
          list[i + 1] = list[i + 1] - units
          if list[i + 1] == 0 then
            table.remove(list, i)
            table.remove(list, i)
          end
          break
        end
      end
    end
    local due = given -- how many units a settlement charges
    if not taken and (expiry <= now or handle == id and expiry <= last_charged) then due = math.max(0, given - units) end

    -- A decision that may charge or hold units replaces a foreign value, even if it is denied. So does a settlement
    -- that charges units. A decision that charges nothing leaves the value, unless the key also has held units, or a
    -- limit of the script has slots, so that the decision is not a plain one and has units.
    if foreign and (task == '1' or task == '2' or task == '0' and units + held > 0 or task == '3' and due > 0) then
      changed = true
      if limit.stores_log then
        failure = limit.replace(key)
        if failure then
          if not all then failure = nil end
        else
          list = list or unfold(held, first, rest)
          written = ''
        end
      end
      next_stored = nil
    end
    -- If the decision is denied, nothing is charged, but close must still remove a foreign value.
    if not failure and all then
      if task == '1' then
        charges = n + f + units > 0 or held == 0
        if units > 0 then
          cost, part = limit.more(0, 0, units)
        end
      elseif task == '2' or task == '6' and taken then
        -- The expiry is later than the expiry of every hold that has been charged, even if the clock has stepped back. It is
        -- rounded up to a multiple of a sixth of the duration, so that there are few different expiries. If the list is
        -- full, the units join one of its holds. No hold gets 0 units, because a call on 0 units only evaluates.
        local step, ends, i = math.max(1, math.floor(duration / 6)), now + duration, 1
        ends = math.max(ends + (step - ends % step) % step, last_charged + 1)
        if next_held == 0 and last_charged == 0 then next_id = task == '2' and given or handle end
        if limit.drains then
          local present = limit.pace()
          next_rate = next_held == 0 and present or fastest(rate, present)
        end
        list = next_held == 0 and { ends, 0 } or list or unfold(held, first, rest)
        next_held, changed = next_held + units, true
        while list[i] and list[i] < ends do i = i + 2 end
        if #list >= 128 then -- the list has 64 holds: it is full
          i = math.min(i, #list - 1)
        elseif list[i] ~= ends then
          table.insert(list, i, 0)
          table.insert(list, i, ends)
        end
        list[i + 1] = list[i + 1] + units
        hold_id, hold_end = next_id, list[i]
      elseif task == '3' and due > 0 then
        charges = true
        cost, part = limit.bound(due, a)
      elseif task == '4' then
        changed = not foreign
        charges, clears, cost, part, places = limit.refund(units, handle, expiry, now, a, b, c, x, y, key)
      elseif task == '5' then
        changed, clears = true, true
        if held == 0 then next_charged = 0 end
      end
    end
    if clears then
      next_stored, debt, parts = nil, 0, 0
      if limit.stores_log then
        if written == '' then redis.call('DEL', key) else redis.call('ZREMRANGEBYRANK', key, 0, -2) end
      end
    end
    if charges then
      local text, lasts, broken, epoch, left = limit.charge(now, cost, part, t, debt, parts, c, x, places, key, written == '' and 0 or 1)
      if limit.stores_log then failure = broken end
      if limit.drains and task == '3' and c > 0 then
        local at_other_rate, other_lasts = limit.forced(stored, now, due, a, b, c, rate, false)
        if at_other_rate then text, lasts = at_other_rate, other_lasts end
      end
      changed, next_stored, needed_until = true, text, now + lasts
      if limit.delays and task == '1' then hold_id, largest = epoch, left or y and y.largest end
    end
    if changed and not failure then
      if not needed_until then
        needed_until = limit.needed(now, debt, parts, c, y)
      end
      failure = limit.close(key, next_stored, now, needed_until, written, next_id, next_charged, next_held, first, rest, next_rate, list)
    end
    return failure, hold_id, hold_end, largest
  end

end

return holds
