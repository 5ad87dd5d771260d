-- What hold.lua does with a limit whose units are charged. The parts of its algorithm, which doc.go
-- describes, and of hold_in_string.lua or hold_in_log.lua take the place of the words in capitals.
-- WINDOW is the second constant, and these are not in doc.go:
--   LOAD      reads the key, and sets `record` if there may be one; LOADED follows if it is a record
--   EVALUATE  asks the algorithm on `ask` units, and beside them on the cost of a plain decision
--   CHARGE    charges them, and sets `expires`
--   REPLACE   drops a foreign value
--   CLEAR     drops all that was charged
--   CLOSE     writes what has changed. What is charged is needed until `till`, or not at all if that is nil
-- PACE is the rate of a bucket, and '' for others. `pace` is the fastest rate at which units were reserved.
--- keeps record, id, charged, held, first, rest, pace, list, expires, ask, taken
--- look
local record, id, charged, held, first, rest, pace = '', 0, 0, 0, 0, '', PACE
local list -- the holds, where they were looked at
local expires -- until when what is charged is needed, where that was written
-- LOAD
if record ~= '' then
  local rate
  id, charged, held, first, rest, rate = parse(record)
  if id then
    if rate ~= '' and pace ~= '' then pace = rate end
-- LOADED
  else
    record, id, charged, held, first, rest = '', 0, 0, 0, 0, ''
  end
end
if held == 0 and charged > 0 and charged + WINDOW <= now then charged, list = 0, {} end
if held > 0 and first <= now and not err then -- each hold that has expired is charged at the instant when it did
  list = unfold(held, first, rest)
  while list[1] and list[1] <= now and not err do
    local now, ask, plain, expired = table.remove(list, 1), table.remove(list, 1), false, true
-- EVALUATE
-- FORCE
-- CHARGE
    held, charged = held - ask, now
    spent = spent + work
  end
  if not err then
    local till = expires
-- CLOSE
  end
end

-- `ask` is on how many units the algorithm is asked. A Settle and a renewal take their units off
-- the hold before that: what is stored is written at the end only. `taken` is whether they were
-- held.
local ask, taken = decides and (plain and held or units + held) or 0, false
if handle == id and held > 0 and (op == '3' or op == '6') then
  list = list or unfold(held, first, rest)
  for i = 1, #list, 2 do
    if list[i] == math.abs(expiry) and list[i + 1] >= units then
      held, taken = held - units, true
      list[i + 1] = list[i + 1] - units
      if held == 0 then
        list = {}
      elseif list[i + 1] == 0 then
        table.remove(list, i)
        table.remove(list, i)
      end
      break
    end
  end
end
if op == '3' then
  ask = given
  if not taken and (expiry <= now or id == handle and expiry <= charged) then ask = math.max(0, given - units) end
end
-- EVALUATE
--- act
local n, charges, changed = op == '3' and ask or units, false, taken
if foreign and (ask > 0 or decides and op ~= '0') then -- who ends what is not there leaves it
  foreign, changed = nil, true
-- REPLACE
end
if err or decides and not all then
  -- Nothing is charged. If a foreign value was replaced, that is written below.
elseif op == '1' then
  charges = units > 0 or held == 0
-- LESS
elseif op == '2' or op == '6' and taken then
  -- An expiry is later than any that was charged, also after a step back of the clock, and a
  -- multiple of a sixth of the duration: so there are few. If the list is full, the units join a
  -- hold that it has. There are none of 0 units: such a call only evaluates.
  local step = math.max(1, math.floor(duration / 6))
  local expiry, i = now + duration, 1
  expiry = math.max(expiry + (step - expiry % step) % step, charged + 1)
  if held == 0 and charged == 0 then id = op == '2' and given or handle end
  pace = held == 0 and PACE or fastest(pace, PACE)
  list = held == 0 and { expiry, 0 } or list or unfold(held, first, rest)
  held, changed = held + units, true
  while list[i] and list[i] < expiry do i = i + 2 end
  if #list >= 128 then -- of 64 holds
    i = math.min(i, #list - 1)
  elseif list[i] ~= expiry then
    table.insert(list, i, 0)
    table.insert(list, i, expiry)
  end
  list[i + 1] = list[i + 1] + units
  reply[r + 7], reply[r + 8] = id, list[i]
elseif op == '3' and ask > 0 then
  charges = true
-- FORCE
elseif op == '4' then
  changed = not foreign
-- REFUND
elseif op == '5' then
  changed = true
-- CLEAR
  if held == 0 then charged, list = 0, {} end
end
if charges then
  changed = true
-- CHARGE
end
if changed and not err then
  local till = expires -- the instant until which what is charged is needed, or nil
  if not till then
-- NEEDED
  end
-- CLOSE
end
--- close
local last, before = first, record
if list then
  last = list[#list - 1]
  record = fold(id, charged, held, list, pace)
elseif rest ~= '' then
  last = math.min(tonumber(string.match(string.sub(rest, -32), ' (%d+):%d+$') or '') or latest, latest)
end
-- The key is kept until `last`: as long as it is needed once everything held is charged.
last = held > 0 and math.max(till or now, last) + TAIL or till or now
-- WRITE
