package algorithm

import "math"

// A Limit is the numbers of one limit.
type Limit struct {
	Count, Period int64 // Count units per Period, from 1 to 1e9 and from 1000 to 400 days
	Burst         int64 // the capacity of a bucket
	Aligned       bool  // fixed windows start at multiples of the period since the Unix epoch
	Named         bool  // the limit has a name of its own, so that its Redis key does not contain the period
}

// A Kind is one of the algorithms: what all limits of it have in common.
type Kind struct {
	Name string // in metrics, logs and Lua, such as "token_bucket"
	Tag  string // in Redis keys, such as "token"

	Bucket   bool                            // it takes Burst
	Delays   bool                            // an admitted request waits for its turn
	Aligns   bool                            // its windows can be aligned
	Burst    func(count, period int64) int64 // the default capacity, where it is not the count
	Validate func(Limit) error               // what is refused beyond the bounds of every limit; nil for nothing

	New func(Limit) Evaluator // makes a limit ready to decide

	decideLua string // its Lua file
	refundLua string // what only a refund needs besides
	costArgs  int    // how many arguments of its script a cost takes

	work func(n int64) int64 // see Work; nil for the same at any cost
}

// Work returns about how many microseconds of Redis a decision on n units takes in
// a script of several, on the machine of docs/performance.md. Redis does nothing
// else meanwhile, so that a batch is bounded by the sum over its decisions and their
// limits. What depends on what is stored the script bounds itself: see [Failed].
func (k *Kind) Work(n int64) int64 {
	if k.work == nil {
		return 3
	}
	return k.work(n)
}

// An Evaluator is one limit, ready to decide. In memory it decides itself; in
// Redis its Lua file does, and the Evaluator provides the arguments and reads the
// reply. All that multiplies and divides is done here, in 64 and 128-bit integers,
// so that Lua only adds and compares.
type Evaluator interface {
	// Evaluate returns how s stands for a decision on n units at now. It does not
	// change what s says, but may drop what has expired.
	Evaluate(s *State, now, n int64) Observation
	// Charge charges n units to s, which was found as o says.
	Charge(s *State, o Observation, n int64)
	// Refund takes back n units that were charged under the ChargeID id.
	Refund(s *State, now, n, id int64)
	// ResetAt returns the instant at which the full limit is available again.
	ResetAt(s *State) int64
	// Usage returns how much of the limit is used at now, from 0 to 1 or a little above.
	Usage(s *State, now int64) float64

	// Constants returns the arguments of the script that are the same for every
	// decision: strings, and int64s, which the script turns into numbers.
	Constants() []any
	// Cost appends the arguments of the script for a cost of n units.
	Cost(args []any, n int64) []any
	// Valid reports whether the script can have replied o.
	Valid(o Observation) bool

	// Outcome returns what o means for a decision on n units, which were charged on
	// top of it or not.
	Outcome(o Observation, n int64, charged bool) Outcome
	// ChargeID returns by what Refund finds the charge that followed o.
	ChargeID(o Observation) int64
}

// An Observation is how a limit stood before a decision. What A, B and C are is
// the algorithm's own: its Evaluate and its Lua file say it.
type Observation struct {
	Admits  bool
	At      int64 // the instant of the decision, since the Unix epoch
	A, B, C int64
}

// A State is what is kept in memory of one limit of one key. What A, B and C are
// is the algorithm's own. The zero State is that of a key never used. In memory
// the clock never steps back, and a limit never changes.
type State struct {
	A, B, C int64
	log     []logEntry
}

// An Outcome is what a decision means to whoever asked, in units and microseconds.
// See core.Result, which has the same fields.
type Outcome struct {
	Limit, Remaining, RetryAfter, ResetAfter, Delay, Window int64
}

// Never is the RetryAfter of a cost above the capacity.
const Never = math.MaxInt64

// maxInstant bounds the instants in a valid reply: up to here a Lua number holds
// every integer.
const maxInstant = 1 << 53
