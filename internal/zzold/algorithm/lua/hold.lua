-- Does for a limiter all that takes more than decide.lua: decisions on keys with holds, holds themselves, refunds and
-- resets. Of the limits of a decision all admit, or none is charged. As in decide.lua, script.go puts the text of each limit
-- in its place: -- LOOK finds out what there is, and -- ACT does what the call asks for.
-- KEYS     the keys of the limits, all of one call and then those of the next
-- ARGV     each limit's constants and the duration of its holds; from `first` on `width` arguments for each call: the
--          operation, a number of units, one more number `given`, and two for each limit, by which it finds a charge or a hold:
--          `handle` and `expiry`
--            '0'  decide on the units, and charge nothing
--            '1'  decide on the units, and charge them; slots are held, with `given` as their id
--            '2'  decide on the units, and hold them; `given` is the id of the holds if there are none yet, and of slots;
--                 `handle` is for how long, if that is not the duration of the limit's holds, or else 0
--            '3'  settle: charge `given` in place of units that are held, and where their hold is over, only what exceeds it:
--                 whether that was charged is no longer known then, if the key has expired since. A negative expiry has
--                 passed, whatever `now` is
--            '4'  take back units that were charged
--            '5'  forget what was charged
--            '6'  hold the units for longer
--            '7'  free slots
-- Replies  {done, t, a, b, c, held, id, expiry} for each limit of each call, in one list. `done` is 1 or 0: whether
--          the limit admits, of operations that decide. `held` is the units held besides, of a queue the largest free
--          place. If there are several calls, one that comes after `most` was spent, or after `full` was set, or that
--          failed before it changed anything, replies 2; one that failed later replies 4.

local base, at, spent, acting = 0, first, 0, false -- what survives a call that fails
local full, probed = false, false -- see frees

-- run makes the calls from that on whose keys begin after `base`. It returns the error of the only one.
local function run(now, grace, several, reply)
-- FUNCTIONS
  local count = #KEYS
  while base < count do
    local op, units, given = ARGV[at], ARGV[at + 1] + 0, ARGV[at + 2] + 0
    local r, decides, all, wrote = 8 * base, op == '0' or op == '1' or op == '2', true, false
    local err = (spent > most or full) and 'not now' or nil
    acting = false
    if not err then
-- LOOK
      if not err then
        acting = true
-- ACT
      end
    end
    if err and not several then return { err = wrote and err .. '; other limits have changed' or err } end
    if err then
      for i = r + 2, r + -- WIDTH do reply[i] = 0 end
      reply[r + 1] = wrote and 4 or 2
    end
-- BAN
    base, at = base + size, at + width
  end
end

local reply = { -- ZEROS }
if #KEYS == size then return run(now, grace, false, reply) or reply end
while base < #KEYS and not pcall(run, now, grace, true, reply) do -- the call at `base` has failed, and is the only one to do so
  local r = 8 * base
  for i = r + 2, r + -- WIDTH do reply[i] = 0 end
  reply[r + 1] = acting and 4 or 2
  base, at = base + size, at + width
end
return reply
