package model

import (
	"fmt"
	"math"
	"math/big"
)

// These two have the same model. That of LeakyBucket is made of it.
var (
	TokenBucket = register("token_bucket", algorithm{new: newBucket, bucket: true})
	GCRA        = register("gcra", algorithm{new: newBucket, bucket: true})
)

// bucket is the store of token bucket and GCRA: when the units that were used will all have drained, at the rate of the
// limit that was charged last. The tokens are the capacity less what is used, and the TAT is that instant.
type bucket struct {
	stored bool
	ends   *big.Rat
	by     Limit // whose rate it is
}

func newBucket() store { return &bucket{} }

func (b *bucket) clone() store {
	c := *b
	return &c
}

func (b *bucket) clock(_ Limit, now int64) int64 { return now }

// left is the time after t until all has drained. It is longer after a step back of the clock.
func (b *bucket) left(t int64) *big.Rat {
	if !b.stored || b.ends.Cmp(whole(t)) < 0 {
		return new(big.Rat)
	}
	return new(big.Rat).Sub(b.ends, whole(t))
}

// other reports whether anything is left at a rate that differs from the rate of l.
func (b *bucket) other(l Limit, t int64) bool {
	return b.left(t).Sign() > 0 && b.by.rate().Cmp(l.rate()) != 0
}

// used are the units that have not drained at t. They may be more than the capacity: by what was settled for more than
// was held, by a step back of the clock, or by a lowered limit.
func (b *bucket) used(l Limit, t int64) *big.Rat {
	return new(big.Rat).Mul(b.debt(l, t), l.rate())
}

// debt is the time that the used units take at the rate of l. What was charged at another rate is a whole number of
// microseconds, at most 4 above the exact one.
func (b *bucket) debt(l Limit, t int64) *big.Rat {
	if !b.other(l, t) {
		return b.left(t)
	}
	left := ceil(b.left(t)) // what ends within a microsecond takes all of it
	debt := up(float64(left) * (b.by.float() / l.float()))
	exact := l.drain(new(big.Rat).Mul(whole(left), b.by.rate()))
	if off := new(big.Rat).Sub(whole(debt), exact); debt < 1<<51 && (off.Sign() < 0 || off.Cmp(whole(4)) > 0) {
		panic(fmt.Sprintf("model: a debt of %v is %v", exact, debt))
	}
	return whole(debt)
}

// float is the rate in doubles, as Lua has it.
func (l Limit) float() float64 { return float64(l.Count) / float64(l.Period) }

// up rounds up a time in doubles.
func up(micros float64) int64 { return int64(min(math.Ceil(micros*(1+1.0/(1<<50))), 1<<60)) }

// retry goes by the rate that is stored: a change applies to what is used after it.
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

// charge has all drain at the rate of l. Only where that is slower, and more is used than l could have admitted, all drains as
// it did: then these n units are charged whether they fit or not.
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

// chargeExpired charges n units whose hold has expired at t, by a decision of l. They drain, with what is stored, at the
// highest rate by which they were reserved, or at that of what is stored if it is higher.
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

// refund gives back what has not drained of a charge on top of which nothing was
// charged: all has still drained when that charge says.
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
