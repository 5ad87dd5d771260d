-- Makes the calls of a limiter. Of the limits of a decision all admit, or none is charged. All are
-- evaluated before the first is charged, because Redis does not undo the writes of a script that
-- fails. Only what has expired is written before.
--
-- A plain decision, on keys without holds and foreign values, stands first. All else is the other
-- branch, whose functions holds.lua has: other calls, and a plain decision that finds more than that.
-- KEYS     the keys of the limits, all of one call and then those of the next. The keys of bans follow those of the limits
-- ARGV     each limit's constants, and then the calls. A plain decision is '1' to charge what is admitted or '0' to evaluate
--          only, and each limit's cost. In a script for limits of other values each call has the constants
--          behind it. The last call stands once for all keys that are left.
--          A call that is no plain decision is the operation, a number of units, one more number `given`, and two for each
--          limit: `handle` and `expiry`, by which it finds a charge or a hold. Where the call begins a hold, `handle` is
--          for how long it lasts
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
--            '8'  see bans.lua
--          '0' and '1' are so where one of the limits has slots: else they are plain decisions.
-- Replies  {admits, t, a, b, c} for each limit of each call, in one list: 1 or 0, and what the algorithm observed before
--          it charged. Other calls, and what the other branch decides, reply {done, t, a, b, c, held, id, expiry}: `done`
--          is 7, or 6 where a limit does not admit. `held` is the units held besides, of a queue the largest free place.
--          If there are several calls, one that fails, or that comes after `most` was spent, replies 2, and charges
--          nothing. One that fails after something was charged replies 4. On a banned key it is 5.
--
-- `limit` is the limit that a part is for: the composer writes a part between EACH LIMIT and END once for each limit, and
-- puts the text of its functions in the place of their calls. The file of an algorithm describes them. They are
--   cost(position)                          a cost that a plain decision has, as the two numbers n and f
--   more(n, f, units)                       a cost and that of some units together
--   evaluate(value, now, n, f, key, records)
--                                           whether the limit admits a cost; t, the instant of the decision (`now`, or one that
--                                           is stored if the clock has stepped back since); a, b and c, the Observation;
--                                           `foreign`, the value if it is none that the algorithm writes; x and y, what
--                                           else charge needs. It writes nothing
--   when(now, n, f, a, b, c, y)             from when on the limit would admit what it denies
--   charge(now, n, f, t, a, b, c, x, y, key, records)
--                                           the text to store, and for how long it is needed
--   bound(units, a)                         the cost of units that need not fit
--   needed(now, a, b, c, y)                 until when what is stored is needed
--   tail(held, rate)                        for how much longer a key is needed once so many units are charged
--   refund(units, handle, expiry, now, a, b, c, x, y, key)
--                                           whether to charge, or else to clear, and a negative cost
-- A value is false if there is none. Of a log it is the newest charge, and it writes by itself.

-- This is what survives a call that fails. `acting` is the limit that is written; `spent` estimates the
-- microseconds that the decisions so far took, beyond the few that any takes.
local base, at, replied, acting, spent = 0, script.first_call, 0, 0, 0

-- run makes the calls, from the one whose keys begin after index `base`. If `why` is given, that
-- one is not made: `why` is its reply. If the script has one call only, run returns its error.
-- `now`, `grace` and `reply` are parameters: Lua takes long for each local that functions share.
local function run(why, now, grace, reply)
  -- PRELUDE
  local keys, arguments = #KEYS, #ARGV
  local err, ready
  -- LIMIT ONCE
  while base < keys do
    local op, r, all = ARGV[at], replied, true
    local plain = not script.slots and (op == '1' or op == '0')
    local other = not plain
    local width = plain and script.plain or op == '6' and script.renewal or script.other
    -- LIMIT OF CALL
    acting = 0
    if spent > most then why = why or 2 end
    -- EACH BAN
    local ban_b, ends_b, level_b, till_b = 0, 0, 0, 0 -- `till`: from then on, all limits would admit that deny by what is charged
    local bans_b = ARGV[at + width - ban.flag] + 0 == 1
    if op <= '2' and (not why or why == 5) then
      ends_b, level_b = ban.read(KEYS[base + ban.key], now)
      if now < ends_b then ban_b, why = 1, 5 end
    end
    -- END

    -- EACH LIMIT
    local value_i
    -- END
    if plain and not why then
      -- EACH LIMIT
      local t_i, a_i, b_i, c_i, x_i, y_i
      if not other then -- SEVERAL
        -- LIMIT
        limit.check(now)
        local key, place = KEYS[base + limit.number], r + limit.reply
        local admits, foreign, largest
        local n, f = limit.cost(at + limit.position)
        if limit.stores_log then
          value_i = redis.pcall('ZRANGE', key, '-1', '-1', 'WITHSCORES')
        else
          value_i = redis.pcall('GET', key)
        end
        if value_i and (value_i.err or limit.stores_log and value_i[2] == 'inf' or
            not limit.stores_log and #value_i > 40 and string.find(value_i, '|', 1, true)) then
          other = true
        else
          admits, t_i, a_i, b_i, c_i, foreign, x_i, y_i, largest = limit.evaluate(value_i, now, n, f, key, 0)
          if foreign then other = true end
          if not admits then
            all = false
            till_b = limit.bars(till_b, bans_b, now, n, f, a_i, b_i, c_i, y_i)
          end
          reply[place + 1], reply[place + 2], reply[place + 3], reply[place + 4], reply[place + 5] = admits and 1 or 0, t_i, a_i, b_i, c_i
          if script.wide or limit.delays and y_i then
            reply[place + 1], reply[place + 6], reply[place + 7], reply[place + 8] = reply[place + 1] + 6, largest or 0, 0, 0
          end
        end
      end -- SEVERAL
      -- END
      if all and op == '1' and not other then
        -- EACH LIMIT
        if not err then -- SEVERAL
          -- LIMIT
          local key, place = KEYS[base + limit.number], r + limit.reply -- SEVERAL
          local n, f = limit.cost(at + limit.position) -- SEVERAL
          local text, lasts, broken, left, epoch
          acting = limit.number
          text, lasts, broken, left, epoch = limit.charge(now, n, f, t_i, a_i, b_i, c_i, x_i, y_i, key, 0)
          if limit.stores_log then
            err = broken
          else
            err = redis.pcall('SET', key, text, 'PX', string.format(whole, lasts / 1000 + grace + 1)).err
          end
          if limit.delays then
            if reply[place + 1] < 6 then reply[place + 5] = epoch else reply[place + 6], reply[place + 7] = left or 0, epoch end
          end
        end -- SEVERAL
        -- END
      end
    end

    if other and not why then
      if not ready then -- this is the first such call
        ready = true
        -- HOLDS
        -- While Redis is full it refuses a write that needs memory only as the first of a script:
        -- after a write that frees some, it refuses none. So if it is full, this is the last call
        -- that is made. This command finds out: it needs memory, and writes nothing.
        local full = keys > script.size and redis.pcall('ZADD', KEYS[base + 1], 'XX', 'INCR', '0', '')
        if type(full) == 'table' and string.find(full.err, 'OOM', 1, true) then spent = most + 1 end
      end
      local units, given, decides = 0, 0, op <= '2'
      if not plain then units, given = ARGV[at + 1] + 0, ARGV[at + 2] + 0 end
      all = true
      if op == '8' then
        why = 1 -- it is done
        -- EACH BAN
        err, ends_b = ban.block(KEYS[base + ban.key], now, units, given)
        -- END
      else
        -- EACH BAN
        till_b = 0 -- it is asked again
        -- END
        -- EACH LIMIT
        local kept_i -- SEVERAL
        do -- SEVERAL
          -- LIMIT
          limit.check(now)
          local key, value, place, n, f, handle, expiry = KEYS[base + limit.number], value_i, r + limit.wide_reply, 0, 0, 0, 0
          if plain then
            n, f = limit.cost(at + limit.position)
          else
            handle, expiry = ARGV[at + limit.handle] + 0, ARGV[at + limit.handle + 1] + 0
          end
          local duration = op == '6' and ARGV[at + limit.duration] + 0 or handle
          local task = limit.operation(op, given)
          local failure, admits, t, a, b, c, held, foreign, x, y, largest, stored, record, records, id, charged, first, rest, rate, list,
            till, ask, taken = limit.look(key, value, now, task, plain, decides, units, given, n, f, handle, expiry, err)
          err = failure
          reply[place + 1], reply[place + 2], reply[place + 3], reply[place + 4], reply[place + 5] = 7, 0, 0, 0, 0
          reply[place + 6], reply[place + 7], reply[place + 8] = 0, 0, 0
          if decides then
            reply[place + 2], reply[place + 3], reply[place + 4], reply[place + 5], reply[place + 6] = t, a, b, c, largest or held
            if not admits then
              reply[place + 1], all = 6, false
              till_b = limit.bars_without_held(till_b, bans_b, now, plain, units, n, f, stored, key, records)
            end
          end
          kept_i = { -- SEVERAL
            key, stored, task, n, f, handle, expiry, duration, t, a, b, c, held, foreign, x, y, largest, -- SEVERAL
            record, records, id, charged, first, rest, rate, list, till, ask, taken, -- SEVERAL
          } -- SEVERAL
        end -- SEVERAL
        -- END
        if not err then
          -- EACH LIMIT
          if not err then -- SEVERAL
            -- LIMIT
            local place = r + limit.wide_reply -- SEVERAL
            local key, stored, task, n, f, handle, expiry, duration, t, a, b, c, held, foreign, x, y, largest, -- SEVERAL
              record, records, id, charged, first, rest, rate, list, till, ask, taken = unpack(kept_i, 1, 28) -- SEVERAL
            acting = limit.number
            local failure, hold_id, hold_end, left = limit.act(key, stored, now, task, plain, all, units, given, n, f, handle, expiry, duration,
              t, a, b, c, held, foreign, x, y, largest, record, records, id, charged, first, rest, rate, list, till, ask, taken)
            err = failure
            if hold_id then reply[place + 7], reply[place + 8] = hold_id, hold_end or 0 end
            if left then reply[place + 6] = left end
          end -- SEVERAL
          -- END
        end
      end
    end

    -- EACH BAN
    if till_b > 0 and not err then
      ban_b, ends_b = ban.begin(KEYS[base + ban.key], now, till_b, level_b)
    end
    -- END
    if err then
      if keys == script.size then return { err = acting > 1 and err .. '; other limits have changed' or err } end
      why, err = acting > 1 and 4 or 2, nil
    end
    if why then
      for i = 2, 8 * script.limits do reply[r + i] = i <= 5 * script.limits and 0 or nil end
      reply[r + 1] = why
      why = nil -- not in one assignment: gopher-lua
    end
    r = r + (reply[r + 1] > 5 and 8 or 5) * script.limits
    -- EACH BAN
    reply[r + 1], reply[r + 2], reply[r + 3] = ban_b, now, ends_b
    r = r + 3
    -- END
    base, replied = base + script.size, r
    if at + width <= arguments then at = at + width end
  end
end

-- The last call may be for many keys: its costs become numbers once, and so do the constants.
if not script.own and #KEYS > script.size then
  for i = #ARGV - script.costs_end, #ARGV - script.costs_end + script.costs - 1 do ARGV[i] = ARGV[i] + 0 end
end
-- EACH LIMIT
if not script.own then -- SEVERAL
  limit.numbers(limit.first) -- SEVERAL
end -- SEVERAL
-- END
local why, reply = nil, { script.zeros }
if #KEYS == script.size then return run(nil, now, grace, reply) or reply end
-- The call at `base` alone has failed: the next run replies that, and goes on.
while not pcall(run, why, now, grace, reply) do why = acting > 0 and 4 or 2 end
return reply
