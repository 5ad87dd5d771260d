// Package algorithm has the rate-limiting algorithms: their arithmetic, their decisions in memory
// and their decisions in Redis. It does not know a Redis client or a Limiter.
//
//	algorithm.go   Kind, Numbers, Evaluator, Observation, Outcome: what all algorithms have in common
//	registry.go    the list of all algorithms; one that is not in it does not exist
//	bucket.go      token bucket and GCRA, in exact fractions of a microsecond; with lua/token_bucket.lua
//	queue.go       leaky bucket: a bucket whose units have places in a queue; with lua/leaky_bucket.lua
//	calendar.go    fixed windows of a calendar: its constants move with the time at which a script is sent
//	all others     each algorithm has a file of its name, and one in lua/
//	call.go        the arguments of a script, and its reply
//	ban.go         bans; with lua/bans.lua
//	hold.go        units that are admitted and not charged yet; with lua/holds.lua
//	script.go      composes the script of a limiter: lua/decide.lua, with the algorithms of its limits
//	inline.go      reads the Lua files, and puts the functions of a limit in the place of their calls
//
// A decision has two steps. First each limit is evaluated, without changing it: does it admit the
// cost? If all limits admit, each is charged. In memory these steps are [Evaluator].Evaluate and
// Charge. In Redis they are the functions evaluate and charge of the algorithm's Lua file, which
// lua/decide.lua calls. A call that is no plain decision, or a decision that finds holds or an unusual
// value, takes the other branch of the same script, whose functions are in lua/holds.lua. Memory and
// Redis give the same [Observation], from which Outcome computes the numbers that users see.
//
// All times are integers in microseconds, and instants count from the Unix epoch.
//
// # A new algorithm
//
// Suppose that it is called ramp. ramp.go has its Kind and its Evaluator: the decision in memory,
// the arguments of the script, and what its reply means. The capacity is the rate's count, or a
// bucket's burst, and its window the rate's period: the suites rely on that. A fixed window of
// another kind embeds fixedWindow, as calendar.go does.
//
// lua/ramp.lua is a Lua program that luacheck accepts alone. It begins with a comment that says what
// is stored, what the constants and the costs are, and the meaning of the results a, b, c, x and y of
// evaluate. An empty line follows, and then the functions that the limit's own functions call. These are
// created once in each run of a script, which takes Redis several hundred instructions each. Then
// comes one function, which has the name of the file:
//
//	local function ramp(constants_at)
//	  local count, period = ARGV[constants_at] + 0, ARGV[constants_at + 1] + 0 -- the constants
//	  local limit = {}
//	  limit.window = period -- a charge that is older counts no more
//
//	  function limit.evaluate(value, now, n) ... end -- on lines of its own
//	  ...
//	  return limit
//	end
//
//	return ramp
//
// It has the constants, then `local limit`, and then fields and functions of limit and nothing else. A
// limit has the functions of lua/holds.lua and lua/bans.lua, which are the same for all algorithms. If a
// limit shares functions with another algorithm, its file has `local limit = fixed_window(constants_at)`
// instead, as lua/calendar.lua does, and defines those that differ; its Kind is given that file as the base.
//
// Its functions, in the order in which a reader needs them:
//
//	numbers   makes the constants that are numbers Lua numbers, once for all calls
//	cost      returns what Cost appended, as two numbers; the second is 0 if there is one
//	more      adds units to a cost
//	check     raises an error that the sender gets; most limits have nothing to check
//	evaluate  reads and checks the value, and says whether the cost fits
//	when      returns the instant from which on the limit would admit what it denies
//	charge    charges a cost, beside what evaluate has observed. The cost may be negative
//	bound     returns the cost of units that are charged whether they fit or not
//	needed    returns until when the value is needed
//	tail      returns for how much longer a key is needed once held units have been charged
//	refund    returns how to take back units that were charged
//
// lua/decide.lua says what these are given and return. Buckets have three more: debt, the cost of
// units; and pace and forced, by which holds keep the rate at which they were reserved. A queue has
// the function task, because it holds nothing. Slots are never charged: lua/in_flight.lua has functions
// look and act of its own, instead of the ones in lua/holds.lua.
//
// A call of these functions is a whole line, which the composer replaces by the body of the function.
// inline.go has the rules. A file that breaks them is refused when the program starts or composes a
// script, or by TestRules, with the line and the rule. Above all, a function has one return, which is its
// last line, and assigns to none of its parameters. A call must give all parameters an argument. As
// in Lua, a result that is missing is nil, and a result too many is dropped.
//
// In these files:
//
//   - A Lua number holds integers only up to 2^53, so Go does all divisions, and all multiplications
//     of large numbers. Large numbers are written in the format `whole`: otherwise Lua keeps only 14
//     digits, and Redis needs more time for a number as an argument.
//   - Constants of type int64 are numbers in Lua, and so is each cost.
//   - In gopher-lua, which miniredis uses, "a, b = nil, a" sets b to nil: it assigns one value after
//     the other.
//   - evaluate checks every value that it reads; see "Foreign values".
//   - Each write sets an expiry: the time until the full limit is available again, plus a
//     grace period.
//   - A stored string begins with a letter and a version that no other algorithm has; registry.go
//     lists them. A test compares the stored values with docs/stored.md.
//
// # Foreign values
//
// Somebody else may write to a key: an older version, an operator, an attacker. A value that no script
// can have written counts as no value. No value makes a script fail, or take longer than with values of
// its own, except for the time that Redis needs to read the value. internal/suite/planted tests these
// rules:
//
//   - A value is foreign if it has another type or another form, or is too long. A value has at most
//     100 bytes. A record of holds has 70 more, and 32 for each of its 64 holds; a queue has 14 more
//     for each of the 256 numbers of its free places. A script checks the length before it matches a
//     pattern, because many patterns take quadratic time.
//   - An instant is foreign if it is more than 400 days, the longest period, ahead of the clock. So a
//     value that was stored before the clock stepped back stays, even across a failover, but a value
//     that was stored under a clock that was wrong by years does not. Only the debt of a bucket and
//     the epoch of a queue may end later, until 2^53, because Settle may charge any cost.
//   - Numbers of units are foreign if no limit can have them: more than 2^30 in a window or a record.
//   - A value that replaces an accepted value must be accepted, too. Otherwise the next decision would
//     start afresh, and admit more than the limit. So digits are not padded, counters stay below
//     their bound, and a full record adds further units to a hold that it has.
//   - The head of a record decides, which is its sum and its first expiry, because a plain decision
//     reads no more. If the holds that follow contradict the head, all units expire at its first expiry.
//   - The ends of a sorted set decide: the newest entry of a log, and the sum and the first member of
//     slots. Every other member counts by its score, as units of a log until it leaves the window, or
//     as a slot until it expires, and is removed then. A slot that expires more than 400 days ahead is
//     removed when a slot is taken.
//   - A charge, a hold and a denial replace a foreign value, and set a TTL. Reset deletes it. Peek, and
//     ending or renewing a hold that is not there, leave it, unless units are held beside it. Every
//     call that finds a foreign ban deletes it.
//   - There is one exception: an unknown version, which check_version in lua/holds.lua finds, is an
//     error, and the value stays.
//
// A value in the form of the scripts is believed, such as a debt of a hundred years, the id of holds, or
// the sum of slots that were taken several at a time. It may deny for as long as it says. With a sum that
// is too small, more slots than the limit can be taken until those end.
package algorithm
