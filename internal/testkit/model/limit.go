package model

import (
	"fmt"
	"math/big"

	"github.com/redislimit/redislimit/internal/testkit/spends"
)

// Algorithm is the name of an algorithm in the library's registry. Each is registered in the file of its store.
type Algorithm string

// An algorithm is the properties of an algorithm that the model needs.
type algorithm struct {
	new    func() store
	spends spends.Kind // the definition by which package spends judges it, too
	bucket bool        // its capacity is Burst, and drains
	queues bool        // an admitted call waits until the units used before it have drained, and there are no holds
}

var algorithms = map[Algorithm]algorithm{}

func register(name Algorithm, a algorithm) Algorithm {
	if a.bucket != (a.spends == spends.Bucket) {
		panic(fmt.Sprintf("model: the algorithm %q needs the definition of what may be spent", name))
	}
	algorithms[name] = a
	return name
}

// Limit is an algorithm with its numbers.
type Limit struct {
	Algorithm Algorithm
	Count     int64  // L, units per period
	Period    int64  // T, microseconds
	Burst     int64  // B, the capacity of a bucket; 0 for other algorithms
	Aligned   bool   // FixedWindow only: windows start at multiples of Period
	Zone      string // Calendar only: the time zone; without it, windows have the length of Period
	Unit      string // Calendar only: the length of its windows, if it has a Zone
	Hold      int64  // the duration for which Reserve holds units, microseconds; 0: the default
}

func (l Limit) bucket() bool { return algorithms[l.Algorithm].bucket }

func (l Limit) queues() bool { return algorithms[l.Algorithm].queues }

// Spends returns the definition of the units that may be spent.
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

// capacity returns the largest n that is ever admitted.
func (l Limit) capacity() int64 {
	if l.bucket() {
		return l.Burst
	}
	return l.Count
}

// rate returns the units per microsecond.
func (l Limit) rate() *big.Rat { return big.NewRat(l.Count, l.Period) }

// drain returns the time in which a bucket drains these units.
func (l Limit) drain(units *big.Rat) *big.Rat {
	return new(big.Rat).Mul(units, big.NewRat(l.Period, l.Count))
}

// check panics if the limit is wrong, which is a mistake of the test that made it.
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

// windowStart returns the last multiple of period at or before t, also for instants before the epoch.
func windowStart(t, period int64) int64 {
	return t - ((t%period)+period)%period
}

func whole(n int64) *big.Rat { return new(big.Rat).SetInt64(n) }

// floor relies on Div being Euclidean: with a positive denominator, it rounds down.
func floor(r *big.Rat) int64 {
	q := new(big.Int).Div(r.Num(), r.Denom())
	if !q.IsInt64() {
		panic("model: value does not fit in 64 bits: " + r.String())
	}
	return q.Int64()
}

func ceil(r *big.Rat) int64 { return -floor(new(big.Rat).Neg(r)) }
