-- Makes the decisions of a limiter: of its limits all admit, or none is charged. All are evaluated before the
-- first write, because Redis does not undo the writes of a script that fails. script.go puts the text of each limit's
-- algorithm in the place of -- EVALUATE and -- CHARGE: functions would take as long as the rest of a decision.
-- KEYS     the keys of the limits, all of one decision and then those of the next
-- ARGV     each limit's constants; from `first` on '1' to charge what is admitted or '0' to evaluate only, and
--          each limit's cost, `width` arguments in all: once for all decisions, or once for each. In a script for
--          limits of different numbers each decision has the constants behind its costs.
-- Replies  {admits, t, a, b, c} for each limit of each decision, in one list: 1 or 0, and what the algorithm observed
--          before it charged. If there are several decisions, one that fails, or that comes after `most` was
--          spent, replies 2, and charges nothing. One on a key with holds replies 3, and charges nothing: it
--          takes hold.lua. One that fails after one of its limits was charged replies 4. Where one is a queue,
--          each has two numbers more: the largest free place, and the epoch of what was charged.
--
-- The text of an algorithm finds `key`, its constants and its cost by the names that it gives them, and `now`. Who stores a
-- string finds `value`, or nil, and sets `text` and for how long it `lasts`.
--   evaluate  sets admits, whether it admits the cost; t, the instant of the decision (`now`, or one that is stored if
--             the clock has stepped back since); a, b and c, the Observation; u, v and what it `keeps`, for charge;
--             and `foreign`, the value if it is none that the algorithm writes, or true for a key of another type.
--             It writes nothing.
--   charge    charges what evaluate admitted, or sets `err` to the error of Redis.

local base, at, charged, spent = 0, first, 0, 0 -- what survives a decision that fails

-- decide makes the decisions from that on whose keys begin after `base`. It replies `why` for the first, if it has failed. It
-- returns the error of the only one. It is given what it can be: Lua takes long for each local that functions share.
local function decide(why, now, grace, step, reply)
-- FUNCTIONS
  local count, err, held = #KEYS, nil, nil
  while base < count do
    local r, all = each * base, true
    charged = 0
    if spent > most then why = why or 2 end
-- LOOK
    if not why then
-- EVALUATE
      if held then
        why, held = 3, nil
      elseif all and ARGV[at] == '1' then
-- CHARGE
        if err then
          if count == size then return { err = charged > 1 and err .. '; other limits have changed' or err } end
          why, err = charged > 1 and 4 or 2, nil
        end
      elseif ARGV[at] == '1' then
-- DENY
      end
    end
    if why then
      for i = 2, each * size do reply[r + i] = 0 end
      reply[r + 1] = why
      why = nil -- not in one assignment: gopher-lua
    end
-- BAN
    base, at = base + size, at + step
  end
end

local why, reply = nil, { -- ZEROS }
if #KEYS == -- SIZE then return decide(nil, now, grace, step, reply) or reply end
while not pcall(decide, why, now, grace, step, reply) do why = charged > 0 and 4 or 2 end -- the decision at `base` has failed, and is the only one to do so
return reply
