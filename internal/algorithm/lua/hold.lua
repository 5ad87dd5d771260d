-- Does for a limiter all that takes more than decide.lua: decisions on keys with holds, holds themselves, refunds and
-- resets. Of the limits of a decision all admit, or none is charged.
-- KEYS     the keys of the limits, all of one call and then those of the next
-- ARGV     each limit's constants and the duration of its holds; from `first` on `width` arguments for each call: the
--          operation, n units, a number m, and two numbers for each limit, by which it finds a charge or a hold
--            '0'  decide on n, and charge nothing
--            '1'  decide on n, and charge them; slots are held, with the id m
--            '2'  decide on n, and hold them; m is the id of the holds if there are none yet, and of slots; the first of a
--                 limit's two numbers is for how long, if that is not the duration of its holds, or else 0
--            '3'  settle: charge m in place of n units held, and where their hold is over, only what exceeds it: whether that was
--                 charged is no longer known then, if the key has expired since. A negative expiry has passed, whatever `now` is
--            '4'  take back n units that were charged
--            '5'  forget what was charged
--            '6'  hold n units for longer
--            '7'  free n slots
-- Replies  {done, t, a, b, c, held, id, expiry} for each limit of each call, in one list. `done` is 1 or 0: whether
--          the limit admits, of operations that decide. `held` is the units held besides, of a queue the largest free place. If there are several calls,
--          one that comes after `most` was spent, or after `full` was set, or that failed before it changed anything,
--          replies 2; one that failed later replies 4.

local reply, count, base, at, size, acting = { 0, 0, 0, 0, 0, 0, 0, 0 }, #KEYS, 0, first, #limits, false

-- run makes the calls from that on whose keys begin after `base`. It returns the error of the only one.
local function run()
  while base < count do
    local op, n, m = ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
    local decides, all, wrote = op <= '2', true, false
    local err = (spent > most or full) and 'not now'
    acting = false
    for i = 1, size do
      local r, admits, t, a, b, c, held = 8 * (base + i), not decides, 0, 0, 0, 0, 0
      err = err or limits[i].open(KEYS[base + i], op, n)
      if decides and not err then admits, t, a, b, c, held = limits[i].decide(KEYS[base + i], n) end
      all = all and admits
      reply[r - 7], reply[r - 6], reply[r - 5], reply[r - 4] = admits and 1 or 0, t, a, b
      reply[r - 3], reply[r - 2], reply[r - 1], reply[r] = c, held, 0, 0
    end
    for i = 1, err and 0 or size do
      local r, x = 8 * (base + i), at + 1 + 2 * i
      local id, expiry, free
      acting = true
      err, id, expiry, free = limits[i].act(KEYS[base + i], op, all, n, m, tonumber(ARGV[x]), tonumber(ARGV[x + 1]))
      if err then break end
      if id then reply[r - 2], reply[r - 1], reply[r] = free or reply[r - 2], id, expiry or 0 end
      wrote = true
    end
    if err and not several then return { err = wrote and err .. '; other limits have changed' or err } end
    if err then reply[8 * base + 1] = wrote and 4 or 2 end
    base, at = base + size, at + width
  end
end

if not several then return run() or reply end
while base < count do
  if not pcall(run) then -- the call there has failed, and is the only one to do so
    for r = 8 * base + 1, 8 * (base + size) do reply[r] = 0 end
    reply[8 * base + 1] = acting and 4 or 2
    base, at = base + size, at + width
  end
end
return reply
