-- Makes the calls of a limiter. Of the limits of a decision all admit, or none is charged. All are
-- evaluated before the first is charged, because Redis does not undo the writes of a script that
-- fails. Only what has expired is written before.
--
-- A plain decision, on keys that have no holds, stands first. All else is the other branch, which
-- hold.lua has: other calls, and a plain decision that finds a record of holds, or a foreign value. Its functions are
-- created there: Lua creates a function each time it comes to it. script.go puts the text of each
-- limit's algorithm in the place of -- EVALUATE and -- CHARGE: as functions a decision took 17 %
-- longer.
-- KEYS     the keys of the limits, all of one call and then those of the next
-- ARGV     each limit's constants, and from `first` on the calls. A plain decision is '1' to charge what is admitted or
--          '0' to evaluate only, and each limit's cost; hold.lua says what other calls are. In a script for limits of
--          other values each call has the constants behind it. The last call stands once for all keys that are left.
-- Replies  {admits, t, a, b, c} for each limit of each call, in one list: 1 or 0, and what the algorithm observed before
--          it charged. Where `admits` is 7 or 6 each limit has three numbers more, which hold.lua lists.
--          If there are several calls, one that fails, or that comes after `most` was spent, replies 2, and charges
--          nothing. One that fails after something was charged replies 4. On a banned key it is 5.
--
-- The text of an algorithm finds `key`, its constants and its cost by the names that it gives them,
-- and `now`. Who stores a string finds `value`, or false, and sets `text` and for how long it
-- `lasts`. Who stores a log sets `value` to its last member.
--   evaluate  sets admits, whether it admits the cost; t, the instant of the decision (`now`, or one that is stored if
--             the clock has stepped back since); a, b and c, the Observation; u, v and what it `keeps`, for charge;
--             and `foreign`, the value if it is none that the algorithm writes. It writes nothing.
--   charge    charges what evaluate admitted, or sets `err` to the error of Redis.

local base, at, replied, acting, spent = 0, first, 0, 0, 0 -- what survives a call that fails; `acting` is the limit that is written

-- run makes the calls, from the one whose keys begin after index `base`. If `why` is given, that
-- one is not made: `why` is its reply. If the script has one call only, run returns its error.
-- `now`, `grace` and `reply` are parameters: Lua takes long for each local that functions share.
local function run(why, now, grace, reply)
-- FUNCTIONS
  local limits, size, keys, arguments = -- LIMITS, -- SIZE, #KEYS, #ARGV
  local err, ready
-- HOLDS
  while base < keys do
    local op, r, all = ARGV[at], replied, true
    local plain = -- PLAIN
    local width, other = plain and -- WIDTHS, not plain
-- VALUES
    acting = 0
    if spent > most then why = why or 2 end
-- LOOK
    if plain and not why then
-- EVALUATE
      if all and op == '1' and not other then
-- CHARGE
      end
    end
    if other and not why then
-- OTHER
    end
-- BAN
    if err then
      if keys == size then return { err = acting > 1 and err .. '; other limits have changed' or err } end
      why, err = acting > 1 and 4 or 2, nil
    end
    if why then
      for i = 2, 8 * limits do reply[r + i] = i <= 5 * limits and 0 or nil end
      reply[r + 1] = why
      why = nil -- not in one assignment: gopher-lua
    end
    r = r + (reply[r + 1] > 5 and 8 or 5) * limits
-- REPLY
    base, replied = base + size, r
    if at + width <= arguments then at = at + width end
  end
end

local why, reply = nil, { -- ZEROS }
if #KEYS == -- SIZE then return run(nil, now, grace, reply) or reply end
-- The call at `base` alone has failed: the next run replies that, and goes on.
while not pcall(run, why, now, grace, reply) do why = acting > 0 and 4 or 2 end
return reply
