// Package algorithm has the rate-limiting algorithms: their arithmetic, their decisions in memory
// and their decisions in Redis. It does not know a Redis client or a Limiter.
//
//	algorithm.go   Kind, Numbers, Evaluator, Observation, Outcome: what all algorithms have in common
//	registry.go    the list of all algorithms
//	bucket.go      token bucket and GCRA, in exact fractions of a microsecond; with lua/token_bucket.lua
//	queue.go       leaky bucket: a bucket whose units have places in a queue; with lua/leaky_bucket.lua
//	calendar.go    fixed windows of a calendar, whose constants depend on the time at which a script is sent
//	*.go           each other algorithm has a file of its name; lua/ has a file of the same name
//	call.go        the arguments of a script, and its reply
//	ban.go         bans; with lua/bans.lua
//	hold.go        units that are admitted and not charged yet; with lua/holds.lua
//	script.go      composes the script of a limiter from lua/decide.lua and the Lua files of its limits
//	inline.go      reads the Lua files, and replaces the calls of a limit's functions by their bodies
//
// A decision has two steps. First, each limit is evaluated, which does not change it: does it admit the
// cost? Then, if all limits admit, each is charged. In memory, these steps are [Evaluator].Evaluate and
// Charge. In Redis, they are the functions evaluate and charge of the algorithm's Lua file, which
// lua/decide.lua calls. A script has two branches. Plain decisions, which charge units or only evaluate, and
// involve no slots, take the fast branch. All other calls, and plain decisions that find holds or an unusual
// value, take the slow branch, whose functions are in lua/holds.lua. A decision makes the same [Observation]
// in memory and in Redis, and Outcome computes from it the numbers that users see.
//
// All times are integers in microseconds, and instants count from the Unix epoch. Only buckets and queues also
// count parts of a microsecond, as a second integer.
//
// # A new algorithm
//
// Suppose that the new algorithm is called ramp. ramp.go has its Kind and its Evaluator: the decision in
// memory, the arguments of the script, and the meaning of the reply. Evaluator.Capacity returns the rate's
// count and period, or for a bucket its burst and the time in which that drains: the suites rely on that. A
// fixed window of another kind embeds fixedWindow, as in calendar.go.
//
// lua/ramp.lua is a Lua program that luacheck accepts alone. It begins with a comment that says what
// is stored, what the constants and the costs are, and the meaning of the results a, b, c, x and y of
// evaluate. After an empty line come the functions that the limit's own functions call. Use few of them:
// each run of a script creates them again, and each costs Redis several hundred instructions. Then
// comes one function, which has the name of the file:
//
//	local function ramp(constants_at)
//	  local count, period = ARGV[constants_at] + 0, ARGV[constants_at + 1] + 0 -- the constants
//	  local limit = {}
//	  limit.window = period -- for how long a charged hold is remembered; see last_charged in lua/holds.lua
//
//	  function limit.evaluate(value, now, n) ... end -- on lines of its own
//	  ...
//	  return limit
//	end
//
//	return ramp
//
// This function has the constants, then `local limit`, and then only fields and functions of limit. A
// limit also has those functions of lua/holds.lua and lua/bans.lua that its file does not define. If the new
// algorithm shares functions with another one, its file has a line like
// `local limit = fixed_window(constants_at)` instead of `local limit = {}`, and defines only the functions
// that differ. Its Kind then passes the other file to readLua as the base. See lua/calendar.lua.
//
// The comment at the beginning of lua/decide.lua lists the functions of a limit, with their parameters and
// results. It is the only list. The file may define further functions that only this file calls.
//
// A call of these functions is a whole line, which the composer replaces by the body of the function.
// inline.go has the rules. If a file breaks one of them, the composer panics with the line and the rule, or
// TestRules fails. The most important rules: a function has at most one return, which is its last line; it
// assigns to none of its parameters; and a call has an argument for each parameter. As in Lua, a missing result
// is nil, and an extra result is dropped.
//
// In these files:
//
//   - A Lua number represents integers exactly only up to 2^53. So divisions and products of large
//     numbers are left to Go where possible, or split into parts.
//   - Large numbers become text by the format `whole`. Otherwise Lua would keep only 14 digits, and
//     Redis would need more time to convert a number that is an argument.
//   - Constants of type int64 are numbers in Lua, and so is each cost.
//   - In gopher-lua, which miniredis uses, "a, b = nil, a" sets b to nil, because gopher-lua assigns the
//     values one after the other.
//   - evaluate checks every value that it reads; see "Foreign values".
//   - Each write that stores units sets the TTL of the key: the time until the full limit is available again.
//     A string also has a grace period: see lua/clock.lua.
//   - A stored string begins with a letter and a version, such as F1; registry.go lists all of them. A new
//     algorithm has a letter of its own. (The three buckets share B, because their values have the same
//     beginning.) A test compares the stored values with docs/stored.md.
//
// # Holds and a new algorithm
//
// Units that are held are admitted, but not charged yet; hold.go and lua/holds.lua handle them for every
// algorithm. A held unit can be spent at any instant until its hold ends: the limiter only learns later that it
// was spent, and charges it at a Settle or at the expiry. What an algorithm has to know about this:
//
//   - A decision evaluates n + held units, as one number, as if all held units were charged at the instant of
//     the decision. Neither Evaluate nor evaluate knows how many of them are held. In Lua, the parameter
//     `records` does not say it either: see lua/decide.lua.
//   - "n + held" is enough if a charged unit counts most at the instant of its charge, and then for less and
//     less or until a fixed instant, whatever else is charged later. Then a unit that is charged later than it
//     was spent makes no decision admit too much. This is so for buckets, for the sliding windows, and for windows
//     that begin at fixed instants: aligned windows, and windows of a calendar. It is also enough for windows that begin
//     with a charge, because these promise something about each window as it was opened, and a hold counts in every
//     window until it ends.
//   - "n + held" is not enough if a later charge changes for how long earlier charges count. An example is a
//     window that lasts until nothing was spent for a period: a held unit may have been spent in what looks like
//     a pause, so the earlier charges still count, and the limit would admit too much. There are three ways
//     out. The first is to define the limit by the instants of the charges, as a window that begins with a charge
//     does; its documents and its judge in package spends must then say so. The second is to charge units when
//     they are reserved, as a queue does. In Lua, its function task does this; in Go, the field Delays of its
//     Kind, which also makes requests wait, so the new algorithm needs another field of Kind. The third is to let
//     evaluate know whether units are held. This needs a new parameter of evaluate, in lua/holds.lua and
//     lua/bans.lua, and in Go the field State.holds.
//   - Reserve does not change the value that the charges have stored; a hold is stored beside the value. This is
//     also true if the value is an old window that has ended: after a step back of the clock, that window is open
//     again, and its charges must count.
//   - Bars, and bars_without_held in lua/bans.lua, evaluate without the held units, because only charges may
//     ban. But the State that Bars passes to Evaluate has its holds. So an Evaluate that looks at State.holds
//     would ban because of held units, unless Bars passes a State without holds.
//
// internal/suite/conformance compares holds with the model and with the judge in package spends. They find an
// algorithm for which "n + held" is not enough.
//
// # Foreign values
//
// Somebody else may write to a key: an older version, an operator, an attacker. A value is called foreign if
// no script can have written it. A foreign value counts as no value. It makes no script fail. It also makes
// no script run longer than a value that scripts have written could, except for the time that Redis needs to
// read the value. internal/suite/planted tests the following rules:
//
//   - A value is foreign if it has another type or another form, or is too long. A value has at most
//     100 bytes. A record of holds has at most 100 more, and 32 for each of its 64 holds. The free places
//     of a queue have at most 14 more for each of their 256 numbers. A script checks the length before it
//     matches a pattern whose time may be quadratic in the length.
//   - An instant is foreign if it is more than 400 days (the longest period) ahead of the clock. So a
//     value that was stored before the clock stepped back is accepted, even after a failover, but not a
//     value that was stored by a clock that was wrong by years. There are two exceptions, which are only
//     foreign from 2^53 on: the end of a bucket's debt, because a capacity may take 100 years to drain and Settle
//     may charge any cost, and the epoch of a queue.
//   - A number of units is foreign if no limit can have so many: more than 2^30 in a window or a record, or
//     2^40 or more in the sum of slots.
//   - A value that replaces an accepted value must be accepted, too. Otherwise the next decision would
//     begin with nothing stored, and admit more than the limit. So an instant whose digits a script writes back
//     as it has read them must not begin with a 0, counters stay within their bound, and a record that is full
//     adds further units to one of its holds.
//   - In a record, the sum of the held units and the first expiry count, because a decision reads only
//     these. If the list of holds behind them contradicts them, all held units expire at the first expiry.
//   - In a sorted set, the ends are checked: the newest entry of a log, and the sum and the first member of
//     slots. Every other member counts by its score. In a log it counts as units until it leaves the
//     window, and among slots as a slot until it expires; then it is removed. A slot that expires more than
//     400 days ahead is removed when another slot is taken or renewed, one at a time.
//   - A charge and a hold replace a foreign value, and set a TTL. If they are denied, they remove the value.
//     Reset deletes it. A settlement replaces it if it charges units. Any other call that ends or renews a hold
//     that is not there leaves the value. Peek leaves it as well, with one exception: it removes the value if the
//     key also has held units, and in a limiter with slots, it removes the foreign values of all other limits.
//     Every call that reads a foreign ban deletes it.
//   - There is one exception to all these rules: a value with an unknown version stays as it is, and the
//     call returns an error. Only Reset and Unblock delete such a value. See check_version in lua/holds.lua.
//
// A value in a form that the scripts write is accepted, even if somebody else wrote it. Examples are a debt of
// a hundred years, the id of holds, or the sum of slots that were taken several at a time. Such a value may
// deny for as long as it says. If the sum of slots is too small, more slots than the limit can be taken until
// the slots that are missing in the sum have ended.
package algorithm
