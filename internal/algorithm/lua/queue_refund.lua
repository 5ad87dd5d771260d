
-- refund frees the place of n units before `next`, unless it has begun or is of another epoch.
local function refund(key, c, n, born, next)
  local w, f = read(key, c)
  if not epoch or epoch ~= born then return end
  free = free or keep('', c, w, math.ceil(f))
  local first, units = next - free.count(ARGV[n], ARGV[n + 1]), free.units
  if first < 0 or first >= next or next > units then return end
  local x, y = length(c, units - first)
  if x > w or (x == w and y >= math.ceil(f)) then return end
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
    x, y = length(c, units - free[#free - 1])
    w, f = w - x, f - y
    if f < 0 then w, f = w - 1, f + ARGV[c + 3] end
    free[#free] = nil
    free[#free] = nil
  end
  for at = #free, 257, -1 do free[at] = nil end -- at most 128: the latest stay gaps
  return charge(key, c, n, 0, 0, 0, 0, w, f) -- which writes it
end
