-- leaky_bucket is a bucket whose units have places in a queue. A place that was given back, and has
-- not begun, is free for who comes next.
-- Value: that of a bucket, ' epoch', and if there are free places ' first,next,first,next ...', in
-- order. The epoch tells one queue from another, and its units are numbered from it: it is about
-- the instant at which the queue was last empty, or changed its rate, or its numbers became too
-- large. A free place has the numbers from `first` up to, and without, `next`. No two free places
-- touch, and none touches the end.
-- Observes: the debt (w, f), and c: 0, or how many units before the end of the queue the free place
-- begins that the cost takes. `largest` is the largest free place. For charge `epoch` is that of
-- the value, nil if the queue is empty or has another rate, and `free` the free places.
--- constants form, W, F, q, period
--- cost dw, df
--- keeps epoch, free
--- operation
-- Nothing is held: to reserve is to charge, and to settle at 0 to take back. What else is for holds
-- does nothing.
local op = op == '2' and '1' or op == '3' and given == 0 and '4' or (op == '1' or op == '4' or op == '5') and op or '0'
--- functions
local without, with_parts = whole .. ' ' .. whole, whole .. '+%d ' .. whole
local newest = 0 -- the newest epoch seen: in one script all have the same `now`

-- keep reads the free places of a queue, and drops what has begun of them. It returns nothing if
-- they are foreign.
local function keep(text, form, q, period, w, f, epoch)
-- length

  -- count returns how many whole units take no longer than a span.
  local function count(w, f)
    local n = math.max(0, math.floor((w + f / q) * (string.match(form, ' (%d+)') / period)))
    local x, y = cost(n + 1)
    if x < w or (x == w and y <= f) then return n + 1 end
    x, y = cost(n)
    if x > w or (x == w and y > f) then return n - 1 end
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

-- unusual_queue returns the debt of a value with parts, free places, or of another rate; the value
-- if it is foreign; the epoch and the free places. Delays were promised: those of another rate stay
-- as they are, in no epoch.
local function unusual_queue(value, form, q, period)
  local debt, born, list = string.match(#value <= longest + 256 * 14 and value or '', '^(B1 %S+ %S+) (%d+) ?([%d,]*)$')
  local w, f, left, foreign = unusual(debt or value, form, q, period)
  born = tonumber(born or 0) or 2 ^ 53 -- miniredis: nil for a number of 20 digits
  if foreign or born >= 2 ^ 53 then return 0, 0, value end
  newest = math.max(newest, born)
  if left > 0 then return left, 0 end
  if not debt or w + f == 0 then return w, f end
  local free = list ~= '' and keep(list, form, q, period, w, f, born) or nil
  if list ~= '' and not free then return 0, 0, value end
  return w, f, nil, born, free
end

-- find_place takes the first free place that is large enough for a cost. It returns how many units
-- before the end it begins, or 0 if there is none, and the largest free place.
local function find_place(free, W, F, dw, df)
  local before, largest = 0, 0
  local cost = (dw < W or (dw == W and df <= F)) and free.count(dw, df) or 0
  for i = 1, #free, 2 do
    local size = free[i + 1] - free[i]
    if cost > 0 and before == 0 and size >= cost then
      free.taken, free.cost, before = i, cost, free.units - free[i]
    end
    if size > largest then largest = size end
  end
  return before, largest
end

-- take_place changes the free places once that is taken which find_place has found. It returns the
-- largest that is left.
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
--- evaluate
local w, f = 0, 0
if value then
  local ends, born
  if #value == #form + 33 and string.sub(value, 1, #form) == form then -- two instants of 16 digits, as from 2001 to 2286
    ends, born = tonumber(string.sub(value, #form + 1, #form + 16)), tonumber(string.sub(value, #form + 18))
  end
  if ends and born and ends % 1 == 0 and born % 1 == 0 and ends < 2 ^ 53 and born < 2 ^ 53 and born >= 0 then
    if born > newest then newest = born end
    if ends > now then w, epoch = ends - now, born end
  else
    w, f, foreign, epoch, free = unusual_queue(value, form, q, period)
  end
end
u, v = w + dw, f + df
if v >= q then u, v = u + 1, v - q end
admits, t, a, b, c = u < W or (u == W and v <= F), now, w, f, 0
if free then
  c, largest = find_place(free, W, F, dw, df)
  if c > 0 then admits, u, v = true, w, f end
end
--- charge
-- It sets `largest` to the largest free place that is left, and `epoch`.
if not (free and free.taken) and (not epoch or (now + u - epoch > 128 * W and
    (now + u - epoch) * (string.match(form, ' (%d+)') / period) > 2 ^ 37)) then -- a new epoch: numbers stay below 2^38
  if newest > latest then newest = 0 end -- of a planted value: the next might be foreign
  epoch, free = now > newest and now or newest + 1, nil
  newest = epoch
end
text, lasts = form .. (v > 0 and string.format(with_parts, now + u, v, epoch) or string.format(without, now + u, epoch)), u + 1
if free then
  largest = take_place(free)
  if free[1] then text = text .. ' ' .. table.concat(free, ',') end
end
--- tail 0
--- refund

-- release frees the place of n units before `next`, unless it has begun. It returns the debt that
-- is left.
local function release(n, next, w, f)
  free = free or keep('', form, q, period, w, f, epoch)
  local first, units = next - n, free.units
  if first < 0 or first >= next or next > units then return end
  local x, y = cost(units - first)
  if x > w or (x == w and y >= f) then return end
  local i = 1
  while free[i] and free[i] < next do i = i + 2 end
  if i > 1 and free[i - 1] > first then return end -- it is free
  table.insert(free, i, next)
  table.insert(free, i, first)
  for at = i + 1, i - 1, -2 do -- merge with the next, and with the one before
    if free[at] and free[at] == free[at + 1] then
      table.remove(free, at)
      table.remove(free, at)
    end
  end
  if free[#free] == units then -- the queue is shorter
    x, y = cost(units - free[#free - 1])
    w, f = w - x, f - y
    if f < 0 then w, f = w - 1, f + q end
    free[#free] = nil
    free[#free] = nil
  end
  for at = #free, 257, -1 do free[at] = nil end -- at most 128 are kept: the last ones are not free, and nobody takes them
  return w, f
end
if epoch and epoch == handle then
  local w, f = release(units, expiry, u, v)
  charges = w ~= nil
  if charges then u, v = w, f end
end
