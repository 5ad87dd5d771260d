
-- leaky_bucket is a bucket whose units have places in a queue. A place that was given back, and has not begun, is free
-- for who comes next.
-- Value: that of a bucket, ' epoch', and if there are free places ' first,next,first,next ...', in order. The epoch is the
-- instant at which the queue was last empty, or changed its rate. Units are counted from there; a place is so many of them in
-- a row, from `first` to before `next`. No two free places touch, and none touches the end.
-- Observes: the debt, and how many units before the end a free place begins that is taken, or 0.
local epoch, free -- of the value that was read last; the epoch is nil if the queue is empty
local newest = 0 -- the newest epoch seen: in one script all have the same `now`

-- keep reads the free places of a queue, and drops what has begun of them. It returns nothing if they are foreign.
local function keep(text, c, w, f)
-- length

  -- count returns how many whole units take no longer than a span.
  local function count(w, f)
    local n = math.max(0, math.floor((w + f / ARGV[c + 3]) * (string.match(ARGV[c], ' (%d+)') / ARGV[c + 4])))
    local x, y = length(c, n + 1)
    if x < w or (x == w and y <= f) then return n + 1 end
    x, y = length(c, n)
    if x > w or (x == w and y > f) then return n - 1 end
    return n
  end

  local units, _, list = count(now + w - epoch, f), pcall(cjson.decode, '[' .. text .. ']')
  local n, last = type(list) == 'table' and #list or 1, -1
  if n % 2 == 1 or n > 256 then return end
  for i = 1, n do
    if list[i] <= last or list[i] >= units then return end
    last = list[i]
  end
  spent = spent + n / 8
  local begun, from = units - count(w, f), 1
  while from < n and list[from + 1] <= begun do from = from + 2 end
  if list[from] then list[from] = math.max(list[from], begun) end
  list = from > n and {} or from > 1 and { unpack(list, from) } or list
  list.units, list.count = units, count
  return list
end

-- read returns the debt, and the value if it is foreign, or true for one of another type.
local function read(key, c)
  local form, value = ARGV[c], redis.pcall('GET', key)
  epoch, free = nil, nil
  if not value then return 0, 0 end
  if value.err then return 0, 0, mistyped(value.err) end
  if #value > longest + 256 * 14 then return 0, 0, value end
  local at = #value > #form and string.sub(value, 1, #form) == form and string.find(value, ' ', #form + 1, true)
  if not at then -- of another rate, or foreign
    local other, born = string.match(value, '^(B1 %S+ %S+) (%d+)')
    newest = math.max(newest, born or 0)
    return restate(other or value, c)
  end
  local ends, f, born, list = tonumber(string.sub(value, #form + 1, at - 1)), 0, tonumber(string.sub(value, at)), nil
  if not ends then
    ends, f = string.match(value, '^(%d+)%+([^ +]+) ', #form + 1)
    ends, f = tonumber(ends or ''), tonumber(f or '')
    if not (f and f >= 0 and f < ARGV[c + 3]) then return 0, 0, value end
  end
  if not born then
    born, list = string.match(value, '^(%d+) ([%d,]+)$', at + 1)
    born = tonumber(born or '')
  end
  if ends % 1 ~= 0 or ends >= 2 ^ 53 or not born or born % 1 ~= 0 or born < 0 or born >= 2 ^ 53 then return 0, 0, value end
  if born > newest then newest = born end
  if ends < now or (ends == now and f == 0) then return 0, 0 end
  epoch = born
  if list then
    free = keep(list, c, ends - now, math.ceil(f)) -- as Go does
    if not free then
      epoch = nil
      return 0, 0, value
    end
  end
  return ends - now, f
end

local function evaluate(key, c, n)
  local W, F, q = ARGV[c + 1], ARGV[c + 2], ARGV[c + 3]
  local w, f, foreign = read(key, c)
  local x, y = w + ARGV[n], f + ARGV[n + 1]
  if y >= q then x, y = x + 1, y - q end
  local admits, before, largest = x < W or (x == W and y <= F), 0, 0
  if free then
    local cw, cf = tonumber(ARGV[n]), tonumber(ARGV[n + 1])
    local cost = (cw < W or (cw == W and cf <= F)) and free.count(cw, cf) or 0
    for i = 1, #free, 2 do
      local size = free[i + 1] - free[i]
      if cost > 0 and before == 0 and size >= cost then
        free.taken, free.cost, admits, before, x, y = i, cost, true, free.units - free[i], w, f
      end
      if size > largest then largest = size end
    end
  end
  return admits, now, w, f == 0 and 0 or math.ceil(f), before, x, y, foreign, largest
end

-- charge returns besides an error the largest free place that is left, and the epoch.
local function charge(key, c, _, _, _, _, _, w, f)
  local form, largest, taken = ARGV[c], 0, free and free.taken
  if taken then
    free[taken] = free[taken] + free.cost
    if free[taken] == free[taken + 1] then
      table.remove(free, taken)
      table.remove(free, taken)
    end
  elseif not epoch or (now + w - epoch > 128 * ARGV[c + 1] and
      (now + w - epoch) * (string.match(form, ' (%d+)') / ARGV[c + 4]) > 2 ^ 37) then -- so many units can be counted
    epoch, free = now > newest and now or newest + 1, nil
    newest = epoch
  end
  local value
  if f > 0 then
    value = string.format('%s%.0f+%.17g %.0f', form, now + w, f, epoch)
  else
    value = string.format('%s%d %d', form, now + w, epoch)
    if #value < #form + 33 then value = string.format('%s%.0f %.0f', form, now + w, epoch) end -- %d has 32 bits on some platforms
  end
  if free then
    for i = 1, #free, 2 do largest = math.max(largest, free[i + 1] - free[i]) end
    if free[1] then value = value .. ' ' .. table.concat(free, ',') end
  end
  return redis.pcall('SET', key, value, 'PX', math.ceil((w + 1) / 1000) + grace).err, largest, epoch
end
