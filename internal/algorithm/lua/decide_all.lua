-- Decides for a limiter of several limits: all of them admit, or none is charged. All are evaluated before
-- the first write, because Redis does not undo the writes of a script that fails.
-- KEYS     the keys of the limits, all of one decision and then those of the next
-- ARGV     each limit's constants; from `first` on '1' to charge what is admitted or '0' to evaluate only, and
--          each limit's cost, `width` arguments in all: once for all decisions, or once for each. In a script
--          for limits of different numbers each decision has their constants behind its costs; see decide.lua.
-- Replies  {admits, t, a, b, c} for each limit of each decision, in one list; see decide.lua. A decision that
--          fails after one of its limits was charged replies 4.

local reply, found, count, base, at, size, charged = {}, {}, #KEYS, 0, first, #limits, 0
for i = 1, size do found[i] = { 0, 0, 0, 0, 0, 0, 0 } end
local step = (own or #ARGV >= first + width) and width or 0

-- decide makes the decisions from that on whose keys begin after `base`. It returns the error of the only one.
local function decide()
  while base < count do
    local skip, charging, all, err, held = spent > most, ARGV[at] == '1', true, nil, nil
    local shift = own and own(at) - 1 or 0
    charged = 0
    for i = 1, size do
      local limit, admits, t, a, b, c, u, v, foreign, free = limits[i], false, 0, 0, 0, 0
      if not skip then
        admits, t, a, b, c, u, v, foreign, free = limit.evaluate(KEYS[base + i], limit.constants + shift, at + limit.cost)
      end
      all = all and admits
      if foreign and foreign ~= true and string.find(foreign, '|', 1, true) then held = true end
      local f = found[i]
      f[1], f[2], f[3], f[4], f[5], f[6], f[7] = t, a, b, c, u, v, foreign
      local r = each * (base + i - 1)
      reply[r + 1], reply[r + 2], reply[r + 3], reply[r + 4], reply[r + 5] = admits and 1 or 0, t, a, b, c
      if each == 7 then reply[r + 6], reply[r + 7] = free or 0, 0 end
    end
    for i = 1, charging and not held and size or 0 do
      local limit = limits[i]
      if all then
        charged = i
        local free, epoch
        err, free, epoch = limit.charge(KEYS[base + i], limit.constants + shift, at + limit.cost, unpack(found[i], 1, 6))
        local r = each * (base + i)
        if free then reply[r - 1], reply[r] = free, epoch end
        if err then
          charged = i - 1
          break
        end
      elseif found[i][7] then
        redis.pcall('SET', KEYS[base + i], '', 'PX', 1000) -- a foreign value may have no TTL
      end
    end
    if err and count == size then return { err = charged > 0 and err .. '; other limits have changed' or err } end
    if held then
      reply[each * base + 1] = 3
    elseif skip or err then
      reply[each * base + 1] = charged > 0 and 4 or 2
    end
    base, at = base + size, at + step
  end
end

if count == size then return decide() or reply end
while base < count do
  if not pcall(decide) then -- the decision there has failed, and is the only one to do so
    for r = each * base + 1, each * (base + size) do reply[r] = 0 end
    reply[each * base + 1] = charged > 0 and 4 or 2
    base, at = base + size, at + step
  end
end
return reply
