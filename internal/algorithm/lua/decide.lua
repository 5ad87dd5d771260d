-- decide.lua makes the calls of a limiter, or of several that decide together. A call decides on
-- several limits, each with a key and a cost of its own. If all of them admit, all are charged, and
-- else none is. All limits are evaluated before the first is charged, because Redis does not undo the
-- writes of a script that fails. Before that only what has expired is written.
--
-- A plain decision on keys without holds and without unusual values stands first. Everything else
-- takes the slow branch, whose functions are in holds.lua: calls other than plain decisions, and
-- plain decisions that find holds or something unusual.
--
-- KEYS     For each call the keys of its limits and then the keys of its bans.
-- ARGV     The constants of each limit, and then the calls. A plain decision is '1' to charge what is
--          admitted, or '0' to evaluate only, and the cost of each limit. The last call stands once for
--          all keys that are left. If the calls are on limits with different numbers, each call has
--          the constants behind it. The last arguments of a call are one for each ban: see bans.lua.
--          Any other call is an operation, a number of units, a number `given`, and for each limit a
--          `handle` and an `expiry`, which say what is settled, renewed or taken back. If the call begins
--          a hold or takes a slot, `handle` is how long that lasts. The operations are
--            '0'  decide on the units and charge nothing
--            '1'  decide on the units and charge them; a slot is taken, with `given` as its id
--            '2'  decide on the units and hold them; `given` is the id of the holds if the key has
--                 none yet, and the id of a slot
--            '3'  settle: end a hold of the units and charge `given` instead. If the hold has expired,
--                 the units have been charged, and only what `given` exceeds them by is charged. If the
--                 hold is not found, a negative expiry says that it has expired
--            '4'  take back units that were charged
--            '5'  forget what was charged
--            '6'  renew a hold or a slot. Behind the call each limit has one more argument: for how
--                 long, counted from now
--            '7'  free a slot
--            '8'  ban: see bans.lua
--          If one of the limits has slots, '0' and '1' are of this longer form, too.
-- Replies  One list. A plain decision adds {admits, t, a, b, c} for each limit: 1 or 0, the instant of
--          the decision, and what the algorithm observed before it charged. The slow branch adds
--          {done, t, a, b, c, held, id, expiry} for each limit: `done` is 7, or 6 if the limit does not
--          admit; `held` is how many units are held, or for a queue the largest free place; and the
--          id and the expiry are those of a hold that has begun. A call on a banned key replies 5.
--          Among several calls, one that fails and one for which no time was left reply 2 and charge
--          nothing. A call that fails after something was charged replies 4.
--
-- The composer (internal/algorithm/inline.go) writes what is between EACH LIMIT and END once for each
-- limit, and puts the bodies of the limit's functions in the place of their calls. It writes a line with
-- ONLY behind it if there are SEVERAL limits, if the limiter has BANS, or, for the constants of
-- one limit, if they are given ONCE for all calls or with each CALL. The functions are
--   check(now)            raises an error that the sender gets
--   cost(position)        a cost that a plain decision has, as two numbers n and f
--   more(n, f, units)     the cost of these units and of that cost together
--   evaluate(value, now, n, f, key, records)
--                         whether the limit admits a cost; t, which is `now`, or the instant that is
--                         stored if the clock has stepped back since; a, b and c, the Observation; the
--                         value if it is foreign, or nil; and x and y, what else charge needs. It writes
--                         nothing. A value is false if none is stored. For a log it is the newest charge,
--                         and `records` is 1 if a record of holds is stored behind that
--   when(now, n, f, a, b, c, y)
--                         the instant from which on the limit would admit what it denies
--   charge(now, n, f, t, a, b, c, x, y, key, records)
--                         the text to store and for how long it is needed. A log writes by itself and
--                         returns an error of Redis behind these. A queue returns nil there, and then its
--                         epoch and the largest free place
--   bound(units, a)       the cost of units that are charged whether they fit or not
--   needed(now, a, b, c, y)  until when what is stored is needed, or nil
--   tail(held, rate)      for how much longer a key is needed once held units are charged
--   refund(units, handle, expiry, now, a, b, c, x, y, key)
--                         whether to charge what follows, whether to remove all that is charged instead,
--                         a negative cost n and f, and y

-- These survive a call that fails. `limit_written` is the number of the limit that is being written, or
-- 0. `spent` estimates how many microseconds the decisions so far took beyond those of a usual one.
local base, at, replied, limit_written, spent = 0, script.first_call, 0, 0, 0

-- run makes the calls, from the one whose keys begin behind index `base`. If a code is given, it is the
-- reply to the first of them, which is not made. A script with one call returns the error of that
-- call. `now`, `grace` and `reply` are parameters because a variable of an outer function is slower.
local function run(code, now, grace, reply)
  -- PRELUDE
  local keys, arguments = #KEYS, #ARGV
  local err, ready
  -- EACH LIMIT
  -- CONSTANTS -- ONLY ONCE
  -- END
  while base < keys do
    local op, offset, all = ARGV[at], replied, true -- `all` limits admit
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
    local admitted_from_b = 0 -- then all limits would admit that deny because of what is charged
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
        -- A record of holds is the last member of a log, and stands behind | in any other value. The
        -- shortest value with a record has more than 40 bytes.
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
        -- If its memory is full, Redis refuses a write that needs memory only if it is the first write of a
        -- script. After a write that frees memory, it refuses none. So if Redis is full, this call is
        -- the last one. The command that finds out is one that needs memory, but writes nothing.
        local full = keys > script.keys and redis.pcall('ZADD', KEYS[base + 1], 'XX', 'INCR', '0', '')
        if type(full) == 'table' and string.find(full.err, 'OOM', 1, true) then spent = time_budget + 1 end
      end
      local units, given = 0, 0 -- the cost of a plain decision is in n and f instead
      if not plain then units, given = ARGV[at + 1] + 0, ARGV[at + 2] + 0 end
      all = true
      if op == '8' then
        code = 1 -- the reply that it is done
        -- EACH BAN
        err, ends_b = ban.block(KEYS[base + ban.key], now, units, given)
        -- END
      else
        -- EACH BAN
        admitted_from_b = 0 -- limits that denied above are evaluated again
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

-- The last call may be for many keys: its costs become numbers once, and so do the constants.
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
-- If a call fails, the next run replies that to the call at `base`, and makes those behind it.
while not pcall(run, code, now, grace, reply) do code = limit_written > 0 and 4 or 2 end
return reply
