package model

import (
	"fmt"
	"math"
	"math/big"
)

// TokenBucket and GCRA have the same model. The model of LeakyBucket is based on it.
var (
	TokenBucket = register("token_bucket", algorithm{new: newBucket, bucket: true})
	GCRA        = register("gcra", algorithm{new: newBucket, bucket: true})
)

// bucket is the store of token bucket and GCRA: the instant at which all used units will have drained, at the rate of the
// limit that charged last. The tokens are the capacity less the used units, and the TAT of GCRA is the stored instant.
type bucket struct {
	stored bool
	ends   *big.Rat
	by     Limit // the limit at whose rate the units drain
}

func newBucket() store { return &bucket{} }

func (b *bucket) clone() store {
	c := *b
	return &c
}

func (b *bucket) clock(_ Limit, now int64) int64 { return now }

// left returns the time from t until all units have drained. It is longer after a step back of the clock.
func (b *bucket) left(t int64) *big.Rat {
	if !b.stored || b.ends.Cmp(whole(t)) < 0 {
		return new(big.Rat)
	}
	return new(big.Rat).Sub(b.ends, whole(t))
}

// other reports whether some units have not drained yet, and drain at another rate than l.
func (b *bucket) other(l Limit, t int64) bool {
	return b.left(t).Sign() > 0 && b.by.rate().Cmp(l.rate()) != 0
}

// used returns the units that have not drained at t. They may exceed the capacity after a settlement at more units than
// were held, after a step back of the clock, or with a lowered limit.
func (b *bucket) used(l Limit, t int64) *big.Rat {
	return new(big.Rat).Mul(b.debt(l, t), l.rate())
}

// debt returns the time that the used units take to drain at the rate of l. For units that were charged at another rate,
// the time is a whole number of microseconds, at most 4 more than the exact time.
func (b *bucket) debt(l Limit, t int64) *big.Rat {
	if !b.other(l, t) {
		return b.left(t)
	}
	left := ceil(b.left(t)) // a part of a microsecond counts as a whole one
	debt := up(float64(left) * (b.by.float() / l.float()))
	exact := l.drain(new(big.Rat).Mul(whole(left), b.by.rate()))
	if off := new(big.Rat).Sub(whole(debt), exact); debt < 1<<51 && (off.Sign() < 0 || off.Cmp(whole(4)) > 0) {
		panic(fmt.Sprintf("model: a debt of %v is %v", exact, debt))
	}
	return whole(debt)
}

// float returns the rate as a double, as Lua computes it.
func (l Limit) float() float64 { return float64(l.Count) / float64(l.Period) }

// up rounds up a time that was computed in doubles.
func up(micros float64) int64 { return int64(min(math.Ceil(micros*(1+1.0/(1<<50))), 1<<60)) }

// retry uses the stored rate: a change of rate applies only to units that are charged after it.
func (b *bucket) retry(l Limit, t, n int64) *big.Rat {
	debt := b.debt(l, t)
	over := new(big.Rat).Add(debt, l.drain(whole(n-l.Burst)))
	if b.other(l, t) {
		over = whole(ceil(over))
		over.Mul(over, whole(ceil(b.left(t))))
		over.Quo(over, debt)
	}
	return over
}

func (b *bucket) reset(_ Limit, t int64) *big.Rat { return b.left(t) }

// charge makes all units drain at the rate of l. There is one exception: if that rate is slower and more units are used
// than l could have admitted, all units drain at the rate before. Then these n units are charged whether they fit or not.
func (b *bucket) charge(l Limit, t, n int64) ticket {
	debt := b.debt(l, t)
	if b.other(l, t) && debt.Cmp(l.drain(whole(l.Burst))) > 0 && b.by.rate().Cmp(l.rate()) > 0 {
		added := up(float64(n) / b.by.float())
		b.ends = whole(t + ceil(b.left(t)) + added)
	} else {
		debt.Add(debt, l.drain(whole(n)))
		b.write(l, debt.Add(debt, whole(t)))
	}
	return ticket{units: n, ends: b.ends}
}

// chargeExpired charges n units whose hold expired at t, by a decision of l. Together with the stored units they drain at
// the highest rate at which they were reserved, or at the stored rate if that is higher.
func (b *bucket) chargeExpired(l, by Limit, t, n int64) {
	left := b.left(t)
	if left.Sign() > 0 && b.by.rate().Cmp(by.rate()) > 0 {
		by = b.by
	}
	if by.rate().Cmp(l.rate()) == 0 {
		b.charge(l, t, n)
		return
	}
	stored := ceil(left)
	if stored > 0 && b.by.rate().Cmp(by.rate()) != 0 {
		stored = up(float64(stored) * (b.by.float() / by.float()))
	}
	b.write(by, whole(t+stored+up(float64(n)/by.float())))
}

// refund gives back the part of a charge that has not drained, if nothing was charged after it: then the stored instant is
// still the one of that charge.
func (b *bucket) refund(l Limit, t int64, back ticket) {
	if !b.stored || b.by.rate().Cmp(l.rate()) != 0 || b.ends.Cmp(back.ends) != 0 {
		return
	}
	switch left := b.left(t); {
	case left.Sign() == 0: // all units have drained
	case left.Cmp(l.drain(whole(back.units))) <= 0:
		*b = bucket{}
	default:
		b.write(l, new(big.Rat).Sub(b.ends, l.drain(whole(back.units))))
	}
}

func (b *bucket) write(l Limit, ends *big.Rat) { b.stored, b.ends, b.by = true, ends, l }
