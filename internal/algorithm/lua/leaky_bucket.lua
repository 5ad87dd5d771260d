-- leaky_bucket.lua is a token bucket whose units have places in a queue. If a place is given back before it begins,
-- it becomes a free place, and a later cost can take it.
--
-- Stored: the value of a token bucket, then ' epoch', and then, if there are free places, ' first,next,first,next ...'
-- in order. The units of a queue are numbered from its epoch. A free place has the numbers from `first` to
-- `next` - 1. No free place touches another one or the end of the queue.
-- A new epoch begins with a charge if the queue is empty, if it is stored at another rate or without an epoch, or if
-- its numbers would become too large. The epoch is the instant of that charge, or the newest epoch that the script
-- has seen plus 1 if that is larger. With a new epoch, the free places are forgotten, and older places cannot be
-- given back any more.
-- Constants and cost: as for a token bucket.
-- Observed: a and b are the debt, which is the time until the end of the queue. If the cost takes a free place, c is
-- the number of units from the beginning of that place to the end of the queue; otherwise c is 0. x is the epoch, or
-- nil if the queue is empty, has another rate, or is stored without an epoch. y is the list of free places, or nil.
-- The field `largest` of the list is the number of units of the largest place.

local with_whole, with_parts = whole .. ' ' .. whole, whole .. '+%d ' .. whole
-- newest_epoch is the newest epoch that this script has seen. All calls of one script have the same `now`, so a new
-- epoch must be greater than newest_epoch to differ from the epochs that this script has given out.
local newest_epoch = 0

-- keep_free reads the free places of a queue, and drops their units that have begun. It returns the list of free
-- places, or nothing if the text is foreign. The list has two fields: `units` is the number of units from the epoch to
-- the end of the queue, and `count` is a function. `debt` is a function that returns the debt of units. `rate` is how
-- many units drain in a microsecond. `w` and `f` are the debt of the queue.
local function keep_free(text, debt, rate, q, w, f, epoch)
  -- count returns how many whole units drain within a time. It estimates the number by `rate`, and corrects it by 1 if
  -- the exact debt of that number contradicts it.
  local function count(span, parts)
    local n = math.max(0, math.floor((span + parts / q) * rate))
    local x, y = debt(n + 1)
    if x < span or (x == span and y <= parts) then return n + 1 end
    x, y = debt(n)
    if x > span or (x == span and y > parts) then return n - 1 end
    return n
  end

  local units, list, size = count(now + w - epoch, f), {}, 0
  for digits in string.gmatch(text, '%d+') do
    list[#list + 1] = tonumber(digits) or 2 ^ 53 -- miniredis: nil for a number of 20 digits
    size = size + #digits + 1
  end
  local n, last = #list, -1
  if n % 2 == 1 or n > 256 or size ~= #text + math.min(n, 1) then return end
  for i = 1, n do
    if list[i] <= last or list[i] >= units then return end
    last = list[i]
  end
  spent = spent + n / 4
  local begun, from = units - count(w, f), 1
  while from < n and list[from + 1] <= begun do from = from + 2 end
  if list[from] then list[from] = math.max(list[from], begun) end
  list = from > n and {} or from > 1 and { unpack(list, from) } or list
  list.units, list.count = units, count
  return list
end

-- find_place finds the first free place that is large enough for the cost n, f. It notes in `free` which place that
-- is, how many units the cost has, and the size of the largest place. It returns the number of units from the
-- beginning of the place to the end of the queue, or 0 if no place is large enough, if the cost is 0, or if it is
-- above the capacity W, F.
local function find_place(free, W, F, n, f)
  local before = 0
  free.largest = 0
  local cost = (n < W or (n == W and f <= F)) and free.count(n, f) or 0
  for i = 1, #free, 2 do
    local size = free[i + 1] - free[i]
    if cost > 0 and before == 0 and size >= cost then
      free.taken, free.cost, before = i, cost, free.units - free[i]
    end
    if size > free.largest then free.largest = size end
  end
  return before
end

-- take_place takes the units of the cost from the free place that find_place has noted, if it has noted one. It
-- returns the size of the largest place that is left.
local function take_place(free)
  local taken, largest = free.taken, 0
  if taken then
    free[taken] = free[taken] + free.cost
    if free[taken] == free[taken + 1] then
      table.remove(free, taken)
      table.remove(free, taken)
    end
  end
  for i = 1, #free, 2 do largest = math.max(largest, free[i + 1] - free[i]) end
  return largest
end

local function leaky_bucket(constants_at)
  local form, W, F = ARGV[constants_at], ARGV[constants_at + 1] + 0, ARGV[constants_at + 2] + 0
  local q, period = ARGV[constants_at + 3] + 0, ARGV[constants_at + 4] + 0
  local limit = token_bucket(constants_at)
  limit.drains = false
  limit.delays = true

  -- The units of a queue cannot be held. To reserve them is to charge them, and to settle them at 0 is to take them
  -- back. The other operations on holds do nothing.
  function limit.task(op, given)
    local task = '9'
    if op == '2' then task = '1' elseif op == '3' and given == 0 then task = '4' elseif op <= '1' or op == '4' or op == '5' then task = op end
    return task
  end

  -- read_queue reads a value that is not in the usual form: it has parts, free places, another rate or no epoch, or is
  -- foreign.
  -- It returns the debt, as two numbers; the value if it is foreign, otherwise nil; the epoch; and the free places.
  -- If the value has another rate, the epoch is nil, and the debt is the time that the queue still takes at the other
  -- rate, because the delays were promised.
  function limit.read_queue(value, now)
    local debt, parts, left, wrong, epoch, free
    local head, digits, list = string.match(#value <= longest + 256 * 14 and value or '', '^(B1 %S+ %S+) (%d+) ?([%d,]*)$')
    local bucket = head or value
    debt, parts, left, wrong = limit.read(bucket, now)
    local born = tonumber(digits or 0) or 2 ^ 53 -- miniredis: nil for a number of 20 digits
    if wrong or born >= 2 ^ 53 then
      debt, parts, wrong = 0, 0, value
    else
      newest_epoch = math.max(newest_epoch, born)
      if left > 0 then
        debt, parts = left, 0
      elseif head and debt + parts > 0 then
        epoch = born
        if list ~= '' then
          local function debt_of(units)
            local time, fraction = limit.debt(units)
            return time, fraction
          end
          free = keep_free(list, debt_of, string.match(form, ' (%d+)') / period, q, debt, parts, born)
          if not free then debt, parts, wrong, epoch = 0, 0, value, nil end
        end
      end
    end
    return debt, parts, wrong, epoch, free
  end

  function limit.evaluate(value, now, n, f)
    local w, v, strange, queue, places = 0, 0, nil, nil, nil
    if value then
      local ends, born
      if #value == #form + 33 and string.sub(value, 1, #form) == form then -- perhaps with two instants of 16 digits: the instants since 2001
        ends, born = tonumber(string.sub(value, #form + 1, #form + 16)), tonumber(string.sub(value, #form + 18))
      end
      if ends and born and ends % 1 == 0 and born % 1 == 0 and ends < 2 ^ 53 and born < 2 ^ 53 and born >= 0 then
        if born > newest_epoch then newest_epoch = born end
        if ends > now then w, queue = ends - now, born end
      else
        w, v, strange, queue, places = limit.read_queue(value, now)
      end
    end
    local whole_sum, part_sum = w + n, v + f
    if part_sum >= q then whole_sum, part_sum = whole_sum + 1, part_sum - q end
    local fits, before = whole_sum < W or (whole_sum == W and part_sum <= F), 0
    if places then
      before = find_place(places, W, F, n, f)
      if before > 0 then fits = true end
    end
    return fits, now, w, v, before, strange, queue, places
  end

  -- charge returns the epoch as its fourth result. Its fifth result is the largest free place that is left, or nil if
  -- there are no free places. If evaluate has found a free place for the cost, charge takes it, and the end of the
  -- queue does not change.
  function limit.charge(now, n, f, _, a, b, _, x, y)
    local w, v, born, free, largest = a, b, x, y, nil
    if not (free and free.taken) then
      w, v = a + n, b + f
      if v >= q then w, v = w + 1, v - q elseif v < 0 then w, v = w - 1, v + q end
      if now + w >= 2 ^ 53 then w, v = 2 ^ 53 - 1 - now, 0 end
      if not born or (now + w - born > 128 * W and
          (now + w - born) * (string.match(form, ' (%d+)') / period) > 2 ^ 37) then -- a new epoch, so that the numbers of units stay below 2^38
        if newest_epoch > latest then newest_epoch = 0 end -- so far in the future: a value with newest_epoch + 1 might be foreign
        born, free = now > newest_epoch and now or newest_epoch + 1, nil
        newest_epoch = born
      end
    end
    local stored = form .. (v > 0 and string.format(with_parts, now + w, v, born) or string.format(with_whole, now + w, born))
    if free then
      largest = take_place(free)
      if free[1] then stored = stored .. ' ' .. table.concat(free, ',') end
    end
    return stored, w + 1, nil, born, largest
  end

  function limit.tail()
    return 0
  end

  -- refund makes the place of the units a free place, if the queue still has the epoch `handle` and the place has not
  -- begun. The last unit of the place has the number `expiry` - 1.
  function limit.refund(units, handle, expiry, _, a, b, _, x, y)
    local left, parts, freed, free = a, b, false, y

    local function debt_of(number)
      local time, fraction = limit.debt(number)
      return time, fraction
    end

    -- release frees a place, and shortens the queue if the place is at its end. It reports false, and does nothing, if
    -- the place is free already or has begun.
    local function release(first, next)
      if first < 0 or first >= next or next > free.units then return false end
      local time, fraction = debt_of(free.units - first)
      if time > left or (time == left and fraction >= parts) then return false end
      local i = 1
      while free[i] and free[i] < next do i = i + 2 end
      if i > 1 and free[i - 1] > first then return false end -- it is free already
      table.insert(free, i, next)
      table.insert(free, i, first)
      for place = i + 1, i - 1, -2 do -- merge with the place after it, and with the place before it
        if free[place] and free[place] == free[place + 1] then
          table.remove(free, place)
          table.remove(free, place)
        end
      end
      if free[#free] == free.units then -- the last free place is at the end: shorten the queue
        time, fraction = debt_of(free.units - free[#free - 1])
        left, parts = left - time, parts - fraction
        if parts < 0 then left, parts = left - 1, parts + q end
        free[#free] = nil
        free[#free] = nil
      end
      for place = #free, 257, -1 do free[place] = nil end -- keep 128 places; nobody takes the forgotten ones
      return true
    end

    if x and x == handle then
      free = free or keep_free('', debt_of, string.match(form, ' (%d+)') / period, q, a, b, x)
      freed = release(expiry - units, expiry)
    end
    return freed, false, left - a, parts - b, free
  end

  return limit
end

return leaky_bucket
