-- The other branch of decide.lua: all that is more than a plain decision on keys without holds. As
-- there, script.go puts the text of each limit in its place: -- LOOK finds out what there is, and
-- -- ACT does what the call asks for.
-- ARGV     of a call that is no plain decision: the operation, a number of units, one more number `given`, and two
--          for each limit: `handle` and `expiry`, by which it finds a charge or a hold. Where the call begins a hold, `handle`
--          is for how long it lasts
--            '0'  decide on the units, and charge nothing
--            '1'  decide on the units, and charge them; slots are held, with `given` as their id
--            '2'  decide on the units, and hold them; `given` is the id of the holds if there are none yet, and of slots
--            '3'  settle: charge `given` in place of units that are held. Where their hold is over, they have been
--                 charged, and `given` is charged only as far as it exceeds them. A negative expiry says that it is over
--                 where no such hold is found, whatever `now` is
--            '4'  take back units that were charged
--            '5'  forget what was charged
--            '6'  hold the units for longer. Each limit has one argument more, behind these: for how long from now
--            '7'  free slots
--            '8'  see ban.lua
--          '0' and '1' are so where one of the limits has slots: else they are plain decisions, with the arguments of these.
-- Replies  {done, t, a, b, c, held, id, expiry} for each limit. `done` is 7, or 6 where a limit does not admit. `held` is
--          the units held besides, of a queue the largest free place.
      if not ready then -- this is the first such call
        ready = true
-- FUNCTIONS
        -- While Redis is full it refuses a write that needs memory only as the first of a script:
        -- after a write that frees some, it refuses none. So if it is full, this is the last call
        -- that is made. This command finds out: it needs memory, and writes nothing.
        local full = keys > size and redis.pcall('ZADD', KEYS[base + 1], 'XX', 'INCR', '0', '')
        if type(full) == 'table' and string.find(full.err, 'OOM', 1, true) then spent = most + 1 end
      end
      local work = 10 -- about how many microseconds it takes to charge a hold that has expired, or to look at slots
      local expired = false -- whether a hold is charged that has expired
      local units, given, decides = 0, 0, op <= '2'
      if not plain then units, given = ARGV[at + 1] + 0, ARGV[at + 2] + 0 end
      all = true
-- BLOCK
-- LOOK
      if not err then
-- ACT
      end
-- BLOCKED
      records, newest_rank = 0, '-1' -- as each call must find them
