-- decide.lua carries out the calls of one limiter, or of several limiters that decide together. A call decides
-- on several limits, each with a key and a cost of its own. If all limits admit, all are charged; otherwise
-- none is charged. All limits are evaluated before the first one is charged, because Redis does not undo the
-- writes of a script that fails. Until then, the script only charges or removes what has expired, and removes
-- foreign values.
--
-- There are two branches. The fast branch, which comes first, makes plain decisions. All other calls take the
-- slow branch, whose functions are in holds.lua. A plain decision that finds holds or something unusual takes
-- the slow branch, too.
--
-- KEYS     For each call, the keys of its limits, and then the keys of its bans.
-- ARGV     The constants of all limits, and then the calls. If there are more keys than the calls need, the
--          last call is made again for the keys that are left. If the calls have limits with different
--          numbers, the constants are not at the beginning: each call has its own. A call consists of these
--          arguments:
--            - a plain decision: '1' to charge the units if they are admitted, or '0' to charge nothing; and
--              the cost of each limit
--            - any other call: the operation; a number of units; a number `given`; and for each limit a
--              `handle` and an `expiry`, which identify what is settled, renewed or taken back. If the call
--              begins a hold or takes a slot, `handle` is instead the time for which it is held. If a limit
--              has slots, '0' and '1' have this form, too
--          Two kinds of arguments may follow at the end of any call:
--            - for each ban one argument: see bans.lua
--            - the constants, if each call has its own
--          The operations are
--            '0'  decide on the units, and charge nothing
--            '1'  decide on the units, and charge them. A slot is taken, and `given` is its id
--            '2'  decide on the units, and hold them. `given` is the id of a slot. It is also the id of the
--                 holds if the key has none yet
--            '3'  settle: end a hold of the units, and charge `given` units instead. If the hold has expired,
--                 its units have been charged already, and only those units that `given` has more are
--                 charged. If the hold is not found, a negative expiry means that it has expired
--            '4'  take back units that were charged
--            '5'  forget what was charged
--            '6'  renew a hold or a slot. The call has one more argument for each limit: the time for which
--                 it is held, counted from now
--            '7'  free a slot
--            '8'  ban: see bans.lua
-- Replies  One list for all calls. A plain decision in the fast branch adds {admits, t, a, b, c} for each
--          limit. `admits` is 1 or 0, t is the instant of the decision, and a, b and c are what the algorithm
--          observed before the charge. For a queue without free places, the epoch is in the place of c if
--          units were charged. The slow branch adds {done, t, a, b, c, held, id, expiry} for each limit.
--          `done` is 7, or 6 if the limit does not admit. `held` is how many units are held. `id` and `expiry`
--          are the handle of a hold that has begun. For a queue, `held` is the largest free place, and `id`
--          the epoch. The fast branch also uses this form for a queue with free places, and for all limits of
--          a script in which a queue is one of several limits.
--          Some calls reply a code instead, followed by zeros: together five integers for each limit. A
--          decision on a banned key replies 5. Operation '8' replies 1. If the list is for several calls, a
--          call that fails replies 2 and charges nothing, and so does a call for which no time was left. A
--          call that fails after some limits have changed replies 4. If a script for one call fails, it
--          replies only the error.
--          The replies about bans follow at the end of each call: see bans.lua.
--
-- The composer (internal/algorithm/inline.go) writes the lines between EACH LIMIT and END once for each limit,
-- and replaces the calls of the limit's functions by their bodies. It writes a line that ends with ONLY and a
-- mark only in these cases:
--   SEVERAL  if there are several limits
--   BANS     if a denial by this limit can ban: its limiter has durations of bans, and it has no slots
--   ONCE     if there is one limit, and its constants are given once for all calls
--   CALL     if there is one limit, and each call has its own constants
-- An algorithm's Lua file defines the following functions of its limit. This is the only list of them. They are in
-- the order in which a reader needs them, with their results. (The file of slots, in_flight.lua, defines only numbers,
-- cost, evaluate and charge.)
--   numbers(position)     nothing. It converts those constants that are numbers, from ARGV[position] on, to Lua
--                         numbers, once for all calls
--   cost(position)        the cost of a limit in a plain decision, as two numbers n and f: the arguments that
--                         Evaluator.Cost appended. f is 0 if Cost appended only one
--   more(n, f, units)     the cost of these units and the cost n, f together
--   evaluate(value, now, n, f, key, records)
--                         whether the limit admits a cost; t, the instant of the decision, which is `now`, or
--                         later if the clock has stepped back behind the stored window or charge; a, b and c,
--                         the Observation; the value if it is foreign, otherwise nil; and x and y, which
--                         charge needs. evaluate checks the value and writes nothing. The value is false if
--                         none is stored, or for a log an empty list. If units are held, n, f is the cost of
--                         the call and of all held units together, and evaluate does not know which part is
--                         held. `records` is only for a log, whose value is the newest charge: it is 1 if a
--                         record of holds is stored behind the charges. All other limits must ignore it,
--                         because it does not say whether units are held
--   when(now, n, f, a, b, c, y)
--                         the instant from which the limit would admit what it denies now
--   charge(now, n, f, t, a, b, c, x, y, key, records)
--                         the text to store after the cost was charged in addition to what evaluate has
--                         observed, and for how long it is needed, counted from `now`. For a refund, the cost
--                         is negative. A log writes its entries itself, and its third result is an error of Redis or
--                         nil. The third result of a queue is nil, and its further results are the epoch and
--                         the largest free place
--   bound(units, a)       the cost of units that are charged whether they fit or not: of all units, or of as
--                         many as the limit can store
--   needed(now, a, b, c, y)
--                         the instant until which the stored value is needed, or nil if it is not needed
--   tail(held, rate)      for how long a key is needed after the held units have been charged
--   refund(units, handle, expiry, now, a, b, c, x, y, key)
--                         whether to charge the negative cost that follows; whether to remove all that was
--                         charged instead; the cost as two numbers n and f; and the y for charge
-- Only some limits define the following functions. All other limits use the ones in holds.lua:
--   check(now)            nothing, but it may raise an error, which the sender gets
--   task(op, given)       the operation that the limit carries out instead of op. A queue has one of its own,
--                         because its units cannot be held
--   pace()                for buckets: the rate at which units drain. With pace and forced, held units keep the
--                         rate at which they were reserved
--   forced(value, now, units, a, b, c, pace, expired)
--                         for buckets, after units were charged whether they fit or not: the text to store
--                         instead, and for how long it is needed, or nil
--   look, act             slots have both of their own, because they are never charged
-- The files of the buckets also define read, debt and read_queue, which only these files call.

-- These variables keep their values when a call fails. `base` and `at` are where the next call begins in KEYS
-- and ARGV, and `replied` is how many integers have been replied. `limit_written` is the number of the limit
-- that is being written, or 0. `spent` estimates how many microseconds the script has taken so far in addition
-- to the time of the same number of usual decisions.
local base, at, replied, limit_written, spent = 0, script.first_call, 0, 0, 0

-- run carries out the calls, beginning with the one whose keys follow index `base`. If a code is given, the
-- first of these calls is not carried out, and the code is its reply. If the script has one call, run returns
-- the error of that call. `now`, `grace` and `reply` are parameters because Lua reads a parameter faster than
-- a variable of an outer function.
local function run(code, now, grace, reply)
  -- PRELUDE
  local keys, arguments = #KEYS, #ARGV
  local err, ready
  -- EACH LIMIT
  -- CONSTANTS -- ONLY ONCE
  -- END
  while base < keys do
    local op, offset, all = ARGV[at], replied, true -- `all`: whether all limits so far admit
    local plain = not script.slots and (op == '1' or op == '0')
    local slow = not plain
    local width = plain and script.plain or op == '6' and script.renewal or script.other
    -- EACH LIMIT
    -- CONSTANTS -- ONLY CALL
    -- END
    limit_written = 0
    if spent > time_budget then code = code or 2 end
    -- EACH BAN
    local ban_b, ends_b, level_b = 0, 0, 0
    local admitted_from_b = 0 -- 0, or if the denial bans, the instant from which the limits would admit what they deny
    local bans_b = ARGV[at + width - ban.flag] + 0 == 1
    if op <= '2' and (not code or code == 5) then
      ends_b, level_b = ban.read(KEYS[base + ban.key], now)
      if now < ends_b then ban_b, code = 1, 5 end
    end
    -- END

    -- EACH LIMIT
    local value_i
    -- END
    if plain and not code then
      -- EACH LIMIT
      local t_i, a_i, b_i, c_i, x_i, y_i
      if not slow then -- ONLY SEVERAL
        -- CONSTANTS -- ONLY SEVERAL
        limit.check(now)
        local key, place = KEYS[base + limit.number], offset + limit.reply
        local admits, foreign
        local n, f = limit.cost(at + limit.position)
        if limit.stores_log then
          value_i = redis.pcall('ZRANGE', key, '-1', '-1', 'WITHSCORES')
        else
          value_i = redis.pcall('GET', key)
        end
        -- A record of holds is the last member of a log. In every other value it begins with |. A value
        -- with a charge and a record has more than 40 bytes. A record without a charge may be shorter:
        -- evaluate takes it for a foreign value, so it leads to the slow branch as well.
        if value_i and (value_i.err or limit.stores_log and value_i[2] == 'inf' or
            not limit.stores_log and #value_i > 40 and string.find(value_i, '|', 1, true)) then
          slow = true
        else
          admits, t_i, a_i, b_i, c_i, foreign, x_i, y_i = limit.evaluate(value_i, now, n, f, key, 0)
          if foreign then slow = true end
          if not admits then
            all = false
            admitted_from_b = limit.bars(admitted_from_b, bans_b, now, n, f, a_i, b_i, c_i, y_i) -- ONLY BANS
          end
          reply[place + 1], reply[place + 2], reply[place + 3], reply[place + 4], reply[place + 5] = admits and 1 or 0, t_i, a_i, b_i, c_i
          if script.wide or limit.delays and y_i then
            reply[place + 1], reply[place + 6], reply[place + 7], reply[place + 8] = reply[place + 1] + 6, 0, 0, 0
            if limit.delays and y_i then reply[place + 6] = y_i.largest end
          end
        end
      end -- ONLY SEVERAL
      -- END
      if all and op == '1' and not slow then
        -- EACH LIMIT
        if not err then -- ONLY SEVERAL
          -- CONSTANTS -- ONLY SEVERAL
          local key, place = KEYS[base + limit.number], offset + limit.reply -- ONLY SEVERAL
          local n, f = limit.cost(at + limit.position) -- ONLY SEVERAL
          limit_written = limit.number
          local text, lasts, failure, epoch, largest = limit.charge(now, n, f, t_i, a_i, b_i, c_i, x_i, y_i, key, 0)
          if limit.stores_log then
            err = failure
          else
            err = redis.pcall('SET', key, text, 'PX', string.format(whole, lasts / 1000 + grace + 1)).err
          end
          if limit.delays then
            if reply[place + 1] < 6 then reply[place + 5] = epoch else reply[place + 6], reply[place + 7] = largest or 0, epoch end
          end
        end -- ONLY SEVERAL
        -- END
      end
    end

    if slow and not code then
      if not ready then -- this is the first call that takes this branch
        ready = true
        -- HOLDS
        -- When its memory is full, Redis refuses writes that need memory, but only as the first write of a
        -- script: after another write, such as one that frees memory, it refuses none. So if the memory is
        -- full, no call is made after this one. The following command finds out: Redis refuses it like a
        -- write that needs memory, but it changes nothing.
        local full = keys > script.keys and redis.pcall('ZADD', KEYS[base + 1], 'XX', 'INCR', '0', '')
        if type(full) == 'table' and string.find(full.err, 'OOM', 1, true) then spent = time_budget + 1 end
      end
      local units, given = 0, 0 -- for a plain decision, n and f have the cost instead
      if not plain then units, given = ARGV[at + 1] + 0, ARGV[at + 2] + 0 end
      all = true
      if op == '8' then
        code = 1 -- the reply: it is done
        -- EACH BAN
        err, ends_b = ban.block(KEYS[base + ban.key], now, units, given)
        -- END
      else
        -- EACH BAN
        admitted_from_b = 0 -- the slow branch evaluates again the limits that have denied in the fast branch
        -- END
        -- EACH LIMIT
        local found_i -- ONLY SEVERAL
        if not err then -- ONLY SEVERAL
          -- CONSTANTS -- ONLY SEVERAL
          limit.check(now)
          local key, place, n, f = KEYS[base + limit.number], offset + limit.wide_reply, 0, 0
          if plain then
            n, f = limit.cost(at + limit.position)
          end
          local task = limit.task(op, given)
          local failure, admits, t, a, b, c, foreign, x, y, stored, record, id, last_charged, held, first, rest, rate = limit.look(key, value_i,
            now, task, units, n, f)
          err = failure
          reply[place + 1], reply[place + 2], reply[place + 3], reply[place + 4], reply[place + 5] = 7, 0, 0, 0, 0
          reply[place + 6], reply[place + 7], reply[place + 8] = 0, 0, 0
          if op <= '2' then
            reply[place + 2], reply[place + 3], reply[place + 4], reply[place + 5], reply[place + 6] = t, a, b, c, held
            if limit.delays and y then reply[place + 6] = y.largest end
            if not admits then
              reply[place + 1], all = 6, false
              admitted_from_b = limit.bars_without_held(admitted_from_b, bans_b, now, units, n, f, stored, key, record) -- ONLY BANS
            end
          end
          found_i = { t, a, b, c, foreign, x, y, stored, record, id, last_charged, held, first, rest, rate } -- ONLY SEVERAL
        end -- ONLY SEVERAL
        -- END
        if not err then
          -- EACH LIMIT
          if not err then -- ONLY SEVERAL
            -- CONSTANTS -- ONLY SEVERAL
            local key, place, n, f = KEYS[base + limit.number], offset + limit.wide_reply, 0, 0 -- ONLY SEVERAL
            local handle, expiry, duration = 0, 0, 0
            if plain then
              n, f = limit.cost(at + limit.position) -- ONLY SEVERAL
            else
              handle, expiry = ARGV[at + limit.handle] + 0, ARGV[at + limit.handle + 1] + 0
              duration = op == '6' and ARGV[at + limit.duration] + 0 or handle
            end
            local task = limit.task(op, given) -- ONLY SEVERAL
            local t, a, b, c, foreign, x, y, stored, record, id, last_charged, held, first, rest, rate = unpack(found_i, 1, 15) -- ONLY SEVERAL
            limit_written = limit.number
            local failure, hold_id, hold_end, largest = limit.act(key, now, task, all, units, given, n, f, handle, expiry, duration,
              t, a, b, c, foreign, x, y, stored, record, id, last_charged, held, first, rest, rate)
            err = failure
            if hold_id then reply[place + 7], reply[place + 8] = hold_id, hold_end or 0 end
            if largest then reply[place + 6] = largest end
          end -- ONLY SEVERAL
          -- END
        end
      end
    end

    -- EACH BAN
    if admitted_from_b > 0 and not err then
      ban_b, ends_b = ban.begin(KEYS[base + ban.key], now, admitted_from_b, level_b)
    end
    -- END
    if err then
      if keys == script.keys then return { err = limit_written > 1 and err .. '; other limits have changed' or err } end
      code, err = limit_written > 1 and 4 or 2, nil
    end
    if code then
      for i = 2, 8 * script.limits do reply[offset + i] = i <= 5 * script.limits and 0 or nil end
      reply[offset + 1] = code
      code = nil
    end
    offset = offset + (reply[offset + 1] > 5 and 8 or 5) * script.limits
    -- EACH BAN
    reply[offset + 1], reply[offset + 2], reply[offset + 3] = ban_b, now, ends_b
    offset = offset + 3
    -- END
    base, replied = base + script.keys, offset
    if at + width <= arguments then at = at + width end
  end
end

-- The last call may be made for many keys, so its costs are converted to numbers once, and so are the constants.
if not script.own and #KEYS > script.keys then
  for i = #ARGV - script.costs_end, #ARGV - script.costs_end + script.costs - 1 do ARGV[i] = ARGV[i] + 0 end
end
-- EACH LIMIT
if not script.own then -- ONLY SEVERAL
  limit.numbers(limit.first) -- ONLY SEVERAL
end -- ONLY SEVERAL
-- END
local code, reply = nil, script.zeros
if #KEYS == script.keys then return run(nil, now, grace, reply) or reply end
-- If a call fails, the next run replies a code to it, which is the call at `base`, and carries out the calls
-- that follow.
while not pcall(run, code, now, grace, reply) do code = limit_written > 0 and 4 or 2 end
return reply
