// Package algorithm is the rate-limiting algorithms: their arithmetic, their
// decisions in memory and their decisions in Redis. It knows no Redis client and
// no Limiter.
//
//	algorithm.go   Kind, Limit, Evaluator, Observation, Outcome: what all algorithms have in common
//	registry.go    the list of all algorithms; one that is not in it does not exist
//	bucket.go      token bucket, GCRA and leaky bucket, with lua/bucket.lua
//	fixed_window.go, sliding_window_counter.go, sliding_window_log.go, with their lua/
//	hold.go        units that are admitted and not charged yet, with lua/hold.lua
//	in_flight.go   slots, with lua/in_flight.lua
//	ratio.go       exact fractions of a microsecond
//	script.go      puts scripts together from the files in lua/, and reads their replies
//
// A decision has two steps. First each limit is evaluated, without changing it: does
// it admit the cost? If all limits admit, each is charged. In memory these steps are
// [Evaluator].Evaluate and Charge; in Redis they are the functions evaluate and charge
// of the algorithm's Lua file, which lua/decide.lua calls. Both give the same
// [Observation], from which Outcome computes the numbers that users see.
//
// All times are integers in microseconds, and instants count from the Unix epoch.
package algorithm
