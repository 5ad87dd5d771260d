package model

import (
	"fmt"
	"math"
	"math/big"
)

// These two algorithms have the same model. The model of LeakyBucket is based on it.
var (
	TokenBucket = register("token_bucket", algorithm{new: newBucket, bucket: true})
	GCRA        = register("gcra", algorithm{new: newBucket, bucket: true})
)

// bucket is the store of token bucket and GCRA. It has the instant at which all used units will have drained, at the rate
// of the limit that was charged last. A token bucket has as many tokens as the capacity exceeds the used units. The
// theoretical arrival time of GCRA is that instant.
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

// left returns the time from t until all used units have drained. If the clock steps back, it becomes longer.
func (b *bucket) left(t int64) *big.Rat {
	if !b.stored || b.ends.Cmp(whole(t)) < 0 {
		return new(big.Rat)
	}
	return new(big.Rat).Sub(b.ends, whole(t))
}

// other reports whether units are left at t that drain at another rate than that of l.
func (b *bucket) other(l Limit, t int64) bool {
	return b.left(t).Sign() > 0 && b.by.rate().Cmp(l.rate()) != 0
}

// used returns the units that have not drained at t. They may be more than the capacity, for three reasons: a settlement
// has charged more than was held, the clock has stepped back, or the limit was lowered.
func (b *bucket) used(l Limit, t int64) *big.Rat {
	return new(big.Rat).Mul(b.debt(l, t), l.rate())
}

// debt returns the time in which the used units drain at the rate of l. If they were charged at another rate, the result is
// a whole number of microseconds, and at most 4 microseconds longer than the exact time.
func (b *bucket) debt(l Limit, t int64) *big.Rat {
	if !b.other(l, t) {
		return b.left(t)
	}
	left := ceil(b.left(t)) // the implementation rounds up to a whole microsecond
	debt := up(float64(left) * (b.by.float() / l.float()))
	exact := l.drain(new(big.Rat).Mul(whole(left), b.by.rate()))
	if off := new(big.Rat).Sub(whole(debt), exact); debt < 1<<51 && (off.Sign() < 0 || off.Cmp(whole(4)) > 0) {
		panic(fmt.Sprintf("model: a debt of %v is %v", exact, debt))
	}
	return whole(debt)
}

// float is the rate as a float64, as Lua computes it.
func (l Limit) float() float64 { return float64(l.Count) / float64(l.Period) }

// up rounds up a time that was computed in float64.
func up(micros float64) int64 { return int64(min(math.Ceil(micros*(1+1.0/(1<<50))), 1<<60)) }

// retry assumes that the used units drain at the rate at which they were stored, because a change of the rate applies
// only from the next charge on.
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

// charge adds n units, and all used units then drain at the rate of l. There is one exception: if the stored rate is
// faster, and more units are used than l could have admitted, all units drain at the stored rate. In that case, the n
// units are charged although they do not fit.
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

// chargeExpired charges n units whose hold has expired at t and was found by a decision of l. All used units then drain at
// one rate: that of by, the fastest limit by which held units were reserved, or the stored rate if that is faster.
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

// refund gives back those units of a charge that have not drained, if nothing was charged after it. That is so if the
// used units will have drained at the same instant as just after that charge.
func (b *bucket) refund(l Limit, t int64, back ticket) {
	if !b.stored || b.by.rate().Cmp(l.rate()) != 0 || b.ends.Cmp(back.ends) != 0 {
		return
	}
	switch left := b.left(t); {
	case left.Sign() == 0: // all has drained
	case left.Cmp(l.drain(whole(back.units))) <= 0:
		*b = bucket{}
	default:
		b.write(l, new(big.Rat).Sub(b.ends, l.drain(whole(back.units))))
	}
}

func (b *bucket) write(l Limit, ends *big.Rat) { b.stored, b.ends, b.by = true, ends, l }
