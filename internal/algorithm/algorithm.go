package algorithm

import (
	"math"

	"github.com/redislimit/redislimit/internal/calendar"
)

// Numbers are the numbers of one limit.
type Numbers struct {
	Count, Period int64 // the rate: Count units (from 1 to 1e9) in each Period (from a millisecond to 400 days, in microseconds)
	Burst         int64 // the capacity of a bucket, or the number of slots of InFlight
	Aligned       bool  // fixed windows start at multiples of the period since the Unix epoch
	Named         bool  // the limit has a name of its own, so that the Redis key of a bucket does not contain the period

	Calendar *calendar.Calendar // for the Kind Calendar alone: its calendar; nil means windows of Period that begin at its multiples
}

// A Kind is one of the algorithms: it has everything that all limits of the algorithm have in
// common.
type Kind struct {
	Name string // the name in metrics, logs and Lua, such as "token_bucket"
	Tag  string // the name in Redis keys, such as "token"

	Bursts bool // limits take the option Burst
	Debt   bool // a cost adds to a debt, which drains at the rate
	Delays bool // units are places in a queue: an admitted request waits for its turn, and its units cannot be held
	Aligns bool // windows can be aligned
	Moves  bool // the constants of the script depend on the time; see Limit.ConstantsAt
	Slots  bool // units are slots: they are held until the work has ended, and there is no rate
	// Unleasable is the reason why units cannot be leased, or "" if they can be leased.
	Unleasable string

	DefaultBurst func(count, period int64) int64 // the default capacity; nil if it is the count
	Validate     func(Numbers) error             // checks what only this algorithm requires; may be nil

	New func(Numbers) Evaluator // makes a limit ready to decide

	// Length returns the length of the window in which o was observed. Length is nil if all windows
	// of a limit have the same length.
	Length func(e Evaluator, o Observation) int64

	lua *luaFile // its Lua file

	work func(n int64) int64 // see Work; nil if the work does not depend on the cost
}

// Work returns about how many microseconds of Redis's time a decision on n units takes in a script
// for several calls, on the machine of docs/performance.md. Redis does nothing else during that
// time, so the Work of a batch is bounded. Work does not include the additional time that some stored
// values take. The script itself estimates that time, and stops early: see time_budget in
// lua/prelude.lua.
func (k *Kind) Work(n int64) int64 {
	if k.work == nil {
		return 3
	}
	return k.work(n)
}

// An Evaluator is one limit in a form that can decide. In memory, the Evaluator decides. In Redis,
// the Lua file of the Kind decides, and the Evaluator provides the arguments and checks the reply. The
// arguments are chosen so that Lua mostly adds and compares: products of counts and times need more
// than the 53 bits of a Lua number.
type Evaluator interface {
	// Evaluate returns the observation of a decision on n units at now, and whether the limit admits
	// them. It charges nothing, but may remove expired charges from s.
	Evaluate(s *State, now, n int64) (o Observation, admits bool)
	// Charge charges n units to s, whether they fit or not. o is the result of an Evaluate of s
	// immediately before.
	Charge(s *State, o Observation, n int64)
	// Refund takes back a charge of n units, which is identified by its handle, as far as the charge still
	// counts. The caller must not take back a charge twice.
	Refund(s *State, now, n int64, charged Handle)
	// ResetAt returns the instant at which the full limit is available again. That may be in the past.
	ResetAt(s *State) int64
	// Usage returns how much of the limit is used at now: 0 means nothing, and 1 the whole limit. The result
	// is above 1 if more was charged than the limit allows, as a settlement can do.
	Usage(s *State, now int64) float64

	// Constants returns the arguments of the script that do not depend on the decision. For a Kind with
	// Moves they depend on the time, so Limit.ConstantsAt replaces them. An int64 among them becomes a
	// number in Lua, and every other value a string.
	Constants() []any
	// Cost appends the arguments of the script for a cost of n units.
	Cost(args []any, n int64) []any
	// Valid reports whether the script can have replied o.
	Valid(o Observation) bool

	// Capacity returns the largest number of units that can be used at once, and the time in which
	// as many come back at the rate of the limit. The time is 0 for slots, which have no rate.
	Capacity() (units, window int64)
	// Outcome returns the outcome of a decision on n units that observed o. admits says whether
	// this limit admits them, and charged whether they were charged.
	Outcome(o Observation, n int64, admits, charged bool) Outcome
	// ChargeHandle returns the handle of the charge of n units that followed o, for Refund. A queue
	// has another method for that, because the handle of a place also contains the epoch.
	ChargeHandle(o Observation, n int64) Handle
	// WithHeld returns the observation that a decision on n units would have made if the held units
	// had been charged immediately before it. o is the observation of a decision on n + held units. The
	// used units in o do not include the held units.
	WithHeld(o Observation, n, held int64) Observation
	// DeniedFor returns for how long, counted from o.At, a cost of n units is certainly denied, even if all
	// held units are given back. o is the observation of a decision on n + held units, which denied.
	DeniedFor(o Observation, n, held int64) int64
	// Adopt converts s to the numbers of this Evaluator. writer is the Evaluator that has written s; it has
	// the same Redis key and perhaps other numbers. Used units stay used. A queue instead keeps the instant at
	// which it ends.
	Adopt(s *State, writer Evaluator, now int64)
	// MaxCharge bounds a charge that is made whether it fits or not, as when a hold expires. It returns
	// how many of n units are charged: fewer than n if a State cannot count n more, or if a larger
	// charge would make no difference, and none if the units are slots.
	MaxCharge(o Observation, n int64) int64
}

// A Handle identifies a charge or a hold for a later call. For a charge, the type of each algorithm
// documents the meaning of A and B. For a hold, A is the id of the holds of the key, and B is the
// instant at which the hold expires. For a slot in Redis, A is the id of the call that took it.
type Handle struct{ A, B int64 }

// An Op is an operation on a key.
type Op byte

// The operations, as scripts know them.
const (
	OpEvaluate Op = '0' + iota // decide, and charge nothing
	OpCharge                   // decide, and charge the units if they are admitted
	OpReserve                  // decide, and hold the units if they are admitted
	OpSettle                   // end a hold, and charge the actual cost instead
	OpRefund                   // take back a charge
	OpReset                    // forget all charges
	OpRenew                    // renew holds
	OpRelease                  // free slots, and keep the charges of other limits
	OpBlock                    // ban by hand for N microseconds; if N is 0, end the ban
)

// An Observation is what a decision has observed of the state of a limit. The meaning of A, B and C
// depends on the algorithm: the type of each algorithm and its Lua file document them. An Observation has
// four words, so that the compiler keeps it in registers: with five words, a decision in memory took 50 %
// longer.
type Observation struct {
	At      int64 // the instant of the decision
	A, B, C int64
}

// An Answer is the answer of one limit to a decision on n units. Admits says whether the limit would admit n
// and all held units together. The used units in the Observation are only those that were charged. See
// Evaluator.WithHeld for an Observation in which held units are used, too.
type Answer struct {
	Admits bool
	Observation
	Held int64 // the units of all holds that have not expired
}

// A State is the state of one limit of one key in memory. The meaning of A, B and C depends on the
// algorithm: the type of each algorithm documents them. The zero State is the state of a key without
// charges. In memory the clock never steps back, unlike in Redis.
type State struct {
	A, B, C int64
	log     *logEntries // the charges of a log, or the free places of a queue; nil if there were none yet
	holds   *holds      // nil if nothing is held
}

// An Outcome has the numbers of a core.Result that differ from decision to decision. Remaining is in
// units, and the others are in microseconds. It has four words for the same reason as an Observation.
type Outcome struct {
	Remaining, RetryAfter, ResetAfter, Delay int64
}

// Never is the RetryAfter of a cost above the capacity.
const Never = math.MaxInt64

// maxInstant is above all instants in a valid reply. A Lua number represents every integer up to
// maxInstant.
const maxInstant = 1 << 53

// maxUnits is the largest number of units that is stored for a window: MaxCharge keeps charges within it. The
// units of a window may exceed the limit, because a settlement may charge more than was held. maxUnits is
// above every limit, and so small that Lua computes the products of a sliding window counter exactly.
const maxUnits = 1 << 30
