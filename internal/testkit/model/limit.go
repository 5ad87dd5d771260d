package model

import (
	"fmt"
	"math/big"

	"github.com/redislimit/redislimit/internal/testkit/spends"
)

// Algorithm is the name of an algorithm, as in the registry of the library. The file of each store registers
// its algorithm.
type Algorithm string

// An algorithm has what the model needs to know about an algorithm.
type algorithm struct {
	new    func() store
	spends spends.Kind // the definition of what may be spent; tests judge the algorithm by it, too
	bucket bool        // whether its capacity is Burst, and its used units drain
	queues bool        // whether an admitted call waits until the units before it have drained, and units are not held
}

var algorithms = map[Algorithm]algorithm{}

// register adds an algorithm, and returns its name.
func register(name Algorithm, a algorithm) Algorithm {
	if a.bucket != (a.spends == spends.Bucket) {
		panic(fmt.Sprintf("model: say what may be spent of %q, by its definition", name))
	}
	algorithms[name] = a
	return name
}

// Limit is an algorithm with its numbers.
type Limit struct {
	Algorithm Algorithm
	Count     int64  // L, units per period
	Period    int64  // T, microseconds
	Burst     int64  // B, the capacity of a bucket; 0 for the others
	Aligned   bool   // FixedWindow only: windows start at multiples of Period
	Zone      string // Calendar only: the time zone; "" means that windows begin at multiples of Period
	Unit      string // Calendar with a Zone only: the length of the windows: "day", "week" or "month"
	Hold      int64  // for how long Reserve holds units, microseconds; 0 means the default
}

func (l Limit) bucket() bool { return algorithms[l.Algorithm].bucket }

func (l Limit) queues() bool { return algorithms[l.Algorithm].queues }

// Spends returns the definition of what may be spent.
func (l Limit) Spends() spends.Kind {
	a, ok := algorithms[l.Algorithm]
	switch {
	case !ok:
		panic(fmt.Sprintf("model: there is no model of the algorithm %q", l.Algorithm))
	case l.Aligned:
		return spends.Aligned
	}
	return a.spends
}

// capacity returns the largest number of units that l admits at once.
func (l Limit) capacity() int64 {
	if l.bucket() {
		return l.Burst
	}
	return l.Count
}

// rate returns the units per microsecond.
func (l Limit) rate() *big.Rat { return big.NewRat(l.Count, l.Period) }

// drain returns the time in which the given number of units drains from a bucket.
func (l Limit) drain(units *big.Rat) *big.Rat {
	return new(big.Rat).Mul(units, big.NewRat(l.Period, l.Count))
}

// check panics if l is not valid, because this is a mistake in the test that made l.
func (l Limit) check() {
	switch {
	case l.Count < 1 || l.Period < 1:
		panic(fmt.Sprintf("model: count and period must be positive: %+v", l))
	case l.bucket() != (l.Burst != 0) || l.Burst < 0:
		panic(fmt.Sprintf("model: a bucket has a positive burst, the others none: %+v", l))
	case l.Aligned && l.Algorithm != FixedWindow:
		panic(fmt.Sprintf("model: only a fixed window can be aligned: %+v", l))
	}
}

func newStore(l Limit) store {
	a, ok := algorithms[l.Algorithm]
	if !ok {
		panic(fmt.Sprintf("model: there is no model of the algorithm %q", l.Algorithm))
	}
	return a.new()
}

// windowStart returns the last multiple of period at or before t. t may be before the Unix epoch.
func windowStart(t, period int64) int64 {
	return t - ((t%period)+period)%period
}

func whole(n int64) *big.Rat { return new(big.Rat).SetInt64(n) }

// floor uses Div, which is Euclidean division. With a positive denominator, as a Rat has, that rounds down.
func floor(r *big.Rat) int64 {
	q := new(big.Int).Div(r.Num(), r.Denom())
	if !q.IsInt64() {
		panic("model: value does not fit in 64 bits: " + r.String())
	}
	return q.Int64()
}

func ceil(r *big.Rat) int64 { return -floor(new(big.Rat).Neg(r)) }
