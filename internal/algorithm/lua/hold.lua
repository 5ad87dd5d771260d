-- What decide.lua does for all that is more than a plain decision on a key without holds: holds themselves, decisions on keys
-- that have some, refunds and resets. As there, script.go puts the text of each limit in its place: -- LOOK finds out what there
-- is, and -- ACT does what the call asks for.
-- ARGV     of a call that is no plain decision: the operation, a number of units, one more number `given`, and three for each
--          limit: `handle` and `expiry`, by which it finds a charge or a hold, and for how long it holds
--            '+0'  decide on the units, and charge nothing: '0' is so with the arguments of a plain decision
--            '+1'  decide on the units, and charge them; slots are held, with `given` as their id
--            '2'   decide on the units, and hold them; `given` is the id of the holds if there are none yet, and of slots
--            '3'   settle: charge `given` in place of units that are held, and where their hold is over, only what exceeds it:
--                  whether that was charged is no longer known then, if the key has expired since. A negative expiry has
--                  passed, whatever `now` is
--            '4'   take back units that were charged
--            '5'   forget what was charged
--            '6'   hold the units for longer
--            '7'   free slots
--            '8'   see ban.lua
-- Replies  {done, t, a, b, c, held, id, expiry} for each limit. `done` is 7 or 6: whether the limit admits, of operations
--          that decide. `held` is the units held besides, of a queue the largest free place. Once `full` is set no call
--          may follow.
      if not holds then
        holds = { costs = {} }
-- RECORD
      end
      local work = 10 -- about how many microseconds it takes to charge what has expired, or to look at slots
      local units, given, wrote = 0, 0, false
      all = true
      if other then
        units, given = ARGV[at + 1] + 0, ARGV[at + 2] + 0
        op = op == '+1' and '1' or op == '+0' and '0' or op
      end
      local decides = op == '0' or op == '1' or op == '2'
-- BLOCK
-- LOOK
      if not err then
        acting = 1
-- ACT
      end
-- BLOCKED
      records, newest_rank = 0, '-1' -- as all find them
      if err then
        if count == size then return { err = wrote and err .. '; other limits have changed' or err } end
        why, err = wrote and 4 or 2, nil
      end
