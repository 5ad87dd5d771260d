// Package algorithm is the rate-limiting algorithms: their arithmetic, their
// decisions in memory and their decisions in Redis. It knows no Redis client and
// no Limiter.
//
//	algorithm.go   Kind, Numbers, Evaluator, Observation, Outcome: what all algorithms have in common
//	registry.go    the list of all algorithms; one that is not in it does not exist
//	bucket.go      token bucket and GCRA, in exact fractions of a microsecond; with lua/bucket.lua
//	queue.go       leaky bucket: a bucket whose units have places in a queue; with lua/queue.lua
//	fixed_window.go, sliding_window_counter.go, sliding_window_log.go, with their lua/
//	hold.go        units that are admitted and not charged yet, with lua/hold.lua
//	in_flight.go   slots, with lua/in_flight.lua
//	script.go      puts scripts together from the files in lua/, and reads their replies
//
// A decision has two steps. First each limit is evaluated, without changing it: does
// it admit the cost? If all limits admit, each is charged. In memory these steps are
// [Evaluator].Evaluate and Charge; in Redis they are the functions evaluate and charge
// of the algorithm's Lua file, which lua/decide.lua calls. Both give the same
// [Observation], from which Outcome computes the numbers that users see.
//
// All times are integers in microseconds, and instants count from the Unix epoch.
//
// # A new algorithm
//
// Suppose that it is called ramp. ramp.go has its Kind and its Evaluator: the decision
// in memory, the arguments of the script, and what its reply means. The capacity is the
// rate's count, or a bucket's burst: the suites rely on that.
//
// lua/ramp.lua has evaluate and charge, lua/ramp_refund.lua has refund, and
// lua/ramp_hold.lua what holds need besides. lua/decide.lua and lua/hold.lua call these,
// and say what they are given and return. In these files:
//
//   - A Lua number holds integers up to 2^53 only, so what divides, or multiplies large
//     numbers, is done in Go. Large numbers are written with %.0f: otherwise Lua keeps
//     14 digits.
//   - Constants of type int64 are numbers in Lua. A cost is a string, which becomes a
//     number where it is added.
//   - evaluate checks all that it reads: a value of another type, another form, numbers
//     that are too large.
//   - Each write sets an expiry: the time until the full limit is available again, and
//     a grace. It returns the error of the write, or nil.
//   - A stored string begins with a letter and a version that no other algorithm has.
package algorithm
