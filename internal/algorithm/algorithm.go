package algorithm

import (
	"math"

	"github.com/redislimit/redislimit/internal/calendar"
)

// Numbers are those of one limit.
type Numbers struct {
	Count, Period int64 // Count units, from 1 to 1e9, per Period, from a millisecond to 400 days
	Burst         int64 // the capacity of a bucket
	Aligned       bool  // fixed windows start at multiples of the period since the Unix epoch
	Named         bool  // the limit has a name of its own, so that a bucket's Redis key does not tell the period

	Calendar *calendar.Calendar // of which a calendar window is one; nil: its windows are multiples of the period
}

// A Kind is one of the algorithms: what all limits of it have in common.
type Kind struct {
	Name string // in metrics, logs and Lua, such as "token_bucket"
	Tag  string // in Redis keys, such as "token"

	Bursts bool // it takes the option Burst
	Debt   bool // a cost is a debt, which drains at the rate
	Delays bool // an admitted request waits for its turn in a queue; its units cannot be held
	Aligns bool // its windows can be aligned
	Moves  bool // its constants are those of an instant; see Member.ConstantsAt
	Slots  bool // its units are slots, which are given back when the work has ended; it has no rate
	// Unleasable is why its units cannot be leased; empty if they can.
	Unleasable string

	DefaultBurst func(count, period int64) int64 // the default capacity, where it is not the count
	Validate     func(Numbers) error             // what is refused beyond the bounds of every limit; nil for nothing

	New func(Numbers) Evaluator // makes a limit ready to decide

	// Length returns that of the window in which o was observed, where windows differ; else it is
	// nil.
	Length func(e Evaluator, o Observation) int64

	lua *luaFile // its Lua file

	work func(n int64) int64 // see Work; nil if it is the same for any cost
}

// Work returns about how many microseconds of Redis a decision on n units takes in a script of
// several, on the machine of docs/performance.md. Redis does nothing else meanwhile, so the Work of
// a batch is bounded. It does not count what depends on the stored values: for that the script
// itself stops early, see lua/prelude.lua.
func (k *Kind) Work(n int64) int64 {
	if k.work == nil {
		return 3
	}
	return k.work(n)
}

// An Evaluator is one limit, ready to decide. In memory it decides itself; in Redis its Lua file
// does, and the Evaluator provides the arguments and checks the reply. The arguments are such that
// a decision in Lua mostly adds and compares: a Lua number has 53 bits, and products of counts and
// times need more.
type Evaluator interface {
	// Evaluate returns what a decision on n units at now observes in s, and whether it admits them.
	// It charges nothing, but may drop from s what has expired.
	Evaluate(s *State, now, n int64) (o Observation, admits bool)
	// Charge charges n units to s. o is what Evaluate has just observed in s.
	Charge(s *State, o Observation, n int64)
	// Refund takes back n units that were charged under a handle, as far as they still count.
	Refund(s *State, now, n int64, charged Handle)
	// ResetAt returns the instant at which the full limit is available again.
	ResetAt(s *State) int64
	// Usage returns how much of the limit is used at now, from 0 to 1 or a little above.
	Usage(s *State, now int64) float64

	// Constants returns the arguments of the script that are the same for every decision. Those
	// that are int64s become Lua numbers, all others are strings.
	Constants() []any
	// Cost appends the arguments of the script for a cost of n units.
	Cost(args []any, n int64) []any
	// Valid reports whether o is an Observation that the script can reply.
	Valid(o Observation) bool

	// Capacity returns the most units that can be used at once, and the time in which so many come
	// back at the limit's rate.
	Capacity() (units, window int64)
	// Outcome returns the outcome of a decision on n units that observed o. admits and charged say
	// whether this limit admits them, and whether they were charged.
	Outcome(o Observation, n int64, admits, charged bool) Outcome
	// ChargeHandle returns the handle of the charge of n units that followed o, for Refund. Where
	// Kind.Delays is set, the reply of Redis has it.
	ChargeHandle(o Observation, n int64) Handle
	// WithHeld returns o as it would be if held units had been charged before the decision on n
	// units.
	WithHeld(o Observation, n, held int64) Observation
	// DeniedFor returns for how long after o, at least, n units are denied, even if all held units
	// are given back. o was observed by a decision on n and held together.
	DeniedFor(o Observation, n, held int64) int64
	// Adopt takes over s from before, an Evaluator with the same Redis key and other numbers. Used
	// units stay used.
	Adopt(s *State, before Evaluator, now int64)
	// MaxCharge returns how many of n units a State can take when the limit is not asked.
	MaxCharge(o Observation, n int64) int64
}

// A Handle is by what a later call finds a charge or a hold.
type Handle struct{ A, B int64 }

// An Op is what a caller asks for.
type Op byte

// The operations, as scripts know them.
const (
	OpEvaluate Op = '0' + iota // decide, and charge nothing
	OpCharge                   // decide, and charge what is admitted
	OpReserve                  // decide, and hold what is admitted
	OpSettle                   // end a hold, and charge the actual cost in its place
	OpRefund                   // take back what was charged
	OpReset                    // forget what was charged
	OpRenew                    // hold for longer
	OpRelease                  // free slots, and keep what other limits charged
	OpBlock                    // ban by hand for n microseconds, or until a ban ends that lasts longer; 0 ends a ban
)

// An Observation is the state of a limit that a decision found. What A, B and C are depends on the
// algorithm: its type and its Lua file document them. It has four words, so that the compiler keeps
// it in registers: with five a decision in memory took half as long again.
type Observation struct {
	At      int64 // the instant of the decision
	A, B, C int64
}

// An Answer is that of one limit to a decision. The Observation does not count the units that are
// held.
type Answer struct {
	Admits bool
	Observation
	Held int64 // the units of all holds that have not expired
}

// A State is the state of one limit of one key in memory. What A, B and C are depends on the
// algorithm: its type documents them. The zero State is that of a key without charges. Unlike in
// Redis the clock never steps back.
type State struct {
	A, B, C int64
	log     *logEntries // of a queue its free places
	holds   *holds      // nil if there are none
}

// Seen returns a copy of s that another Evaluator may take over and evaluate, and s stays as it is.
func (s *State) Seen() State {
	seen := *s
	if s.log != nil {
		entries := *s.log
		seen.log = &entries
	}
	return seen
}

// An Outcome is the numbers of a core.Result that differ from decision to decision, in units and
// microseconds. It has four words, as an Observation.
type Outcome struct {
	Remaining, RetryAfter, ResetAfter, Delay int64
}

// Never is the RetryAfter of a cost above the capacity.
const Never = math.MaxInt64

// maxInstant bounds the instants in a valid reply: up to here a Lua number holds every integer.
const maxInstant = 1 << 53

// maxUnits bounds the units of a window, which go beyond its limit where more is charged than was
// held. It is above any limit, and the products of a sliding window counter with it are exact in
// Lua.
const maxUnits = 1 << 30
