package core

import _ "embed"

// An algorithm is what all limits of one kind have in common.
type algorithm struct {
	name     string                // in metrics, logs and Lua: "token_bucket"
	tag      string                // in keys: "token"
	script   string                // its Lua file
	library  []string              // Lua that stands before it
	bucket   bool                  // takes Burst
	burst    func(Rate) int64      // the default capacity, where it is not the rate's count
	validate func(Limit) error     // what New checks beyond every limit's bounds
	compile  func(l Limit) decider // the limit, ready to decide
}

// A decider is one limit made ready: it puts a decision to its Lua script and
// makes sense of the answer. Everything but the decision itself is worked out
// here, in 64 and 128-bit integers, so that the scripts only add and compare.
type decider interface {
	// constants returns the script's arguments that are the same for every decision.
	constants() []any
	// price returns the script's argument for n units.
	price(n int64) any
	// plausible tells whether r is what the script can have answered.
	plausible(r reading) bool
	// result writes to res what r says, with n units charged on top of it or not.
	result(res *Result, r *reading, n int64, charged bool)
	// mark returns by what a refund finds the charge that followed r.
	mark(r reading) int64

	stateful
}

// A reading is what a decision found in a limit's state. The numbers x, y and z
// are the algorithm's own; they say how things stood before the decision.
type reading struct {
	admits  bool
	t       int64 // the instant of the decision, in microseconds since the epoch
	x, y, z int64
}

// readingLen is how many integers a script answers for each limit.
const readingLen = 5

// maxInstant bounds what a plausible script answers: up to here a Lua number
// holds every integer.
const maxInstant = 1 << 53

//go:embed state.lua
var stateLibrary string

//go:embed decide.lua
var decideScript string

//go:embed decide_all.lua
var decideAllScript string

//go:embed refund.lua
var refundScript string
