// Package algorithm is the rate-limiting algorithms: their arithmetic, their
// decisions in memory and their decisions in Redis. It knows no Redis client and
// no Limiter.
//
//	algorithm.go   Kind, Limit, Evaluator, Observation, Outcome: what all algorithms have in common
//	registry.go    the list of all algorithms; one that is not in it does not exist
//	bucket.go      token bucket, GCRA and leaky bucket, with lua/bucket.lua
//	fixed_window.go, sliding_window_counter.go, sliding_window_log.go, with their lua/
//	ratio.go       exact fractions of a microsecond
//	script.go      puts scripts together from the files in lua/, and reads their replies
//
// A decision has two steps. First each limit is evaluated: it is looked at, and
// answers whether it admits the cost. If all limits admit, each is charged. In
// memory [Evaluator].Evaluate and Charge do that; in Redis the functions evaluate
// and charge of the algorithm's Lua file. Both give the same [Observation], from
// which Outcome works out the numbers that users see.
//
// All times are integers in microseconds.
package algorithm
