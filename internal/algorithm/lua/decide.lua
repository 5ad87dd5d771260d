-- Makes the calls of a limiter. Of the limits of a decision all admit, or none is charged. All are evaluated before the first
-- write, because Redis does not undo the writes of a script that fails. script.go puts the text of each limit's algorithm in the
-- place of -- EVALUATE and -- CHARGE: as functions a decision took 17 % longer. What a plain decision does not need stands in
-- the place of -- OTHERS, with its functions: Lua creates a function each time it comes to it.
-- KEYS     the keys of the limits, all of one call and then those of the next
-- ARGV     each limit's constants; from `first` on the calls that are no plain decisions, as hold.lua has them; and then
--          the plain ones: '1' to charge what is admitted or '0' to evaluate only, and each limit's cost: once for all
--          of them, or once for each. In a script for limits of different numbers each call has the constants behind it.
-- Replies  {admits, t, a, b, c} for each limit of each call, in one list: 1 or 0, and what the algorithm observed before it
--          charged. Of all but a plain decision on a key without holds it is as hold.lua has it, and `admits` 7 or 6.
--          If there are several calls, one that fails, or that comes after `most` was spent, replies 2, and changes
--          nothing. One that fails after one of its limits was charged replies 4. On a banned key it is 5.
--
-- The text of an algorithm finds `key`, its constants and its cost by the names that it gives them, and `now`. Who stores a
-- string finds `value`, or nil, and sets `text` and for how long it `lasts`. Who stores a log sets `value` to its newest entry.
--   evaluate  sets admits, whether it admits the cost; t, the instant of the decision (`now`, or one that is stored if
--             the clock has stepped back since); a, b and c, the Observation; u, v and what it `keeps`, for charge;
--             and `foreign`, the value if it is none that the algorithm writes. It writes nothing.
--   charge    charges what evaluate admitted, or sets `err` to the error of Redis.

local base, at, replied, acting, spent = 0, first, 0, 0, 0 -- what survives a call that fails; `acting` is the limit that is charged

-- run makes the calls from that on whose keys begin after `base`. It replies `why` for the first, if it has failed. It returns
-- the error of the only one. It is given what it can be: Lua takes long for each local that functions share.
local function run(why, now, grace, reply)
-- FUNCTIONS
  local count, err, holds = #KEYS, nil
  local step = -- STEP
  while base < count do
    local op, r, all, value = ARGV[at], replied, true
    local plain = op == '1' or op == '0'
    local other = not plain
    acting = 0
    if spent > most then why = why or 2 end
-- LOOK
    if plain and not why then
-- EVALUATE
      if not plain then -- a key has holds
        -- FOREIGN
      elseif all and op == '1' then
-- CHARGE
        if err then
          if count == size then return { err = acting > 1 and err .. '; other limits have changed' or err } end
          why, err = acting > 1 and 4 or 2, nil
        end
      elseif op == '1' then
-- DENY
      end
    end
    if not (plain or why) then
-- OTHERS
    end
    if why then
      for i = 2, 8 * limits do reply[r + i] = i <= 5 * limits and 0 or nil end
      reply[r + 1] = why
      why = nil -- not in one assignment: gopher-lua
    end
    r = r + (reply[r + 1] > 5 and 8 or 5) * limits
-- BAN
    base, at, replied = base + size, at + (other and -- WIDTH or step), r
    if other then step = -- STEP end
  end
end

local why, reply = nil, { -- ZEROS }
if #KEYS == -- SIZE then return run(nil, now, grace, reply) or reply end
while not pcall(run, why, now, grace, reply) do why = acting > 0 and 4 or 2 end -- the call at `base` has failed, and is the only one to do so
return reply
