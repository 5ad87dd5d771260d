// Package algorithm is the rate-limiting algorithms: their arithmetic, their decisions in memory
// and their decisions in Redis. It knows no Redis client and no Limiter.
//
//	algorithm.go   Kind, Numbers, Evaluator, Observation, Outcome: what all algorithms have in common
//	registry.go    the list of all algorithms; one that is not in it does not exist
//	bucket.go      token bucket and GCRA, in exact fractions of a microsecond; with lua/bucket.lua
//	queue.go       leaky bucket: a bucket whose units have places in a queue; with lua/queue.lua
//	calendar.go    fixed windows of a calendar: its constants move with the time at which a script is sent
//	all others     each algorithm has a file of its name, and one in lua/
//	call.go        what a script is asked, and what it replies
//	ban.go         bans, whose texts stand beside those of the limits; with lua/ban.lua
//	hold.go        units that are admitted and not charged yet, with lua/hold.lua
//	script.go      puts scripts together from the files in lua/
//
// A decision has two steps. First each limit is evaluated, without changing it: does it admit the
// cost? If all limits admit, each is charged. In memory these steps are [Evaluator].Evaluate and
// Charge; in Redis they are the parts evaluate and charge of the algorithm's Lua file, which
// script.go puts into lua/decide.lua. All but plain decisions on keys without holds are a branch of
// the same script, lua/hold.lua. Memory and Redis give the same [Observation], from which Outcome
// computes the numbers that users see.
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
// lua/ramp.lua has parts, each below a line like "--- evaluate". script.go puts their texts into
// the script, where they find some names and set others. They stand in it for plain decisions, and
// again for all others:
//
//	constants  the names of what Constants returns. The second is the length of a window
//	cost       the names of what Cost appends
//	keeps      the names of what evaluate finds for charge, beyond those that lua/decide.lua lists; may be missing
//	functions  for what is rare; they stand once for all limits of a script; may be missing
//	check      before evaluate: raises an error that the sender is to hear of; may be missing
//	evaluate   sets what lua/decide.lua says
//	retry      for bans, where evaluate denies: sets `retry`, the instant from which it would admit
//	charge     charges what evaluate admitted, as lua/decide.lua says
//
// The others are for lua/hold_limit.lua. There evaluate is asked on `ask` units in place of the
// cost that the call has, and `now` may be the instant at which a hold expired:
//
//	force   after evaluate, before a charge that need not fit: changes what evaluate found to what can be stored
//	less    before a charge beside `held` units, on which evaluate was asked, too: takes them off what it found. For
//	        buckets: all others charge `n`
//	needed  sets `till`, the instant until which what evaluate found is needed, if it is
//	tail    in the same line: for how much longer a key is needed once the units `held` have been charged
//	refund  takes back `units` that were charged under `handle` and `expiry`: by a charge, for which it sets `charges`
//	        and what charge finds; by -- CLEAR, where nothing is left; or by itself
//
// Buckets have four more: rare, a function that evaluate creates where it needs it; length, the
// function cost(units); forced, behind charge, by which it keeps another rate; and operation, by
// which a queue does something else where it holds nothing. Slots have no state but what is held:
// lua/in_flight.lua has parts look and act in place of those of lua/hold_limit.lua.
//
// In these files:
//
//   - A Lua number holds integers up to 2^53 only, so what divides, or multiplies large
//     numbers, is done in Go. Large numbers are written by the format
//     that `whole` has: otherwise Lua keeps 14 digits, and Redis takes long for a number as an argument.
//   - Constants of type int64 are numbers in Lua, and so is each cost.
//   - "a, b = nil, a" is not exchanged by gopher-lua, which miniredis uses: it assigns one after the other.
//   - evaluate checks all that it reads; see "Foreign values".
//   - Each write sets an expiry: the time until the full limit is available again, and
//     a grace.
//   - A stored string begins with a letter and a version that no other algorithm has: those in registry.go. A test
//     compares what is stored with docs/stored.md.
//
// # Foreign values
//
// Somebody else may write to a key: an older version, an operator, an attacker. What is there
// counts as nothing stored unless a script may have written it. No value makes a script fail, or
// take longer than its own values do, but for what Redis takes to read the value.
// internal/suite/planted holds these rules:
//
//   - Foreign is a key of another type, another form, and what is too long: more than 100
//     bytes, and beside them 70 and 32 for each of 64 holds of a record, and 14 for each of
//     256 numbers of a queue's free places. The length is looked at before a pattern is
//     matched, because many patterns take quadratic time.
//   - Foreign is an instant more than 400 days, the longest period, ahead of the clock. So
//     what was stored before the clock stepped back stays, also across a failover, but not
//     what was stored under a clock that was wrong by years. Only the debt of a bucket may
//     end later, until 2^53: Settle may charge any cost. So may the epoch of a queue.
//   - Foreign are units beyond what any limit holds: 2^30 in a window or a record.
//   - What is written over a value that was accepted is accepted, too, whatever comes next:
//     else the next decision would start afresh, and more than the limit be admitted. So
//     digits are not padded, counters have room up to their bound, and a full record
//     takes further units into a hold that it has.
//   - Of a record the head decides, its sum and its first expiry: a plain decision reads no more. Where the holds that
//     follow contradict it, all units expire at its first expiry.
//   - Of a sorted set the ends decide: of a log the newest entry, and of slots the sum and
//     the first member. What else is there counts as its score says:
//     as units of a log until it leaves the window, as a slot until it expires, and it is removed
//     then. A slot more than 400 days ahead is removed when a slot is taken.
//   - A charge, a hold and a denial replace a foreign value, and a TTL is set. Reset deletes
//     it. Peek, and the end or renewal of what is not there, leave it, unless units are held
//     beside it. A foreign ban is deleted by whoever finds it.
//   - One exception: a version that is not known, which lua/newer.lua finds, is an error, and stays.
//
// What is in the form of the scripts is believed: a debt of a hundred years, the id of holds, the
// sum of slots that are taken several at a time. It may deny for as long as it says. With a sum
// below the truth more slots than the limit can be taken, until those end.
package algorithm
