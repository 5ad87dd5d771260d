package model

import "math/big"

// These two have the same model. That of LeakyBucket is made of it.
var (
	TokenBucket = register("token_bucket", algorithm{new: newBucket, bucket: true})
	GCRA        = register("gcra", algorithm{new: newBucket, bucket: true})
)

// bucket is the store of token bucket and GCRA: the debt, which is what
// was used and has not drained yet, at the instant when it was written, with the rate
// of that moment. The tokens are the capacity less the debt, and the TAT is instant + debt*T/L.
type bucket struct {
	stored  bool
	debt    *big.Rat // units
	instant int64
	rate    *big.Rat // units per microsecond, in force when this was written
}

func newBucket() store { return &bucket{} }

func (b *bucket) clone() store {
	c := *b
	return &c
}

func (b *bucket) clock(_ Limit, now int64) int64 { return now }

// debtAt returns the debt at t. It drains at the stored rate even if the limit has been
// changed since: a change applies to what is used after it. Before instant, after a
// step back of the clock, the debt is larger, because it ends at the same time.
func (b *bucket) debtAt(t int64) *big.Rat {
	if !b.stored {
		return new(big.Rat)
	}
	drained := new(big.Rat).Mul(whole(t-b.instant), b.rate)
	debt := drained.Sub(b.debt, drained)
	if debt.Sign() < 0 {
		return new(big.Rat)
	}
	return debt
}

// used is the debt, which may be above the capacity: by what was settled for more than
// was held, by a step back of the clock, or by a lowered burst. Only a debt of another
// rate is at most the capacity.
func (b *bucket) used(l Limit, t int64) *big.Rat {
	debt := b.debtAt(t)
	if full := whole(l.Burst); b.stored && b.rate.Cmp(l.rate()) != 0 && debt.Cmp(full) > 0 {
		return full
	}
	return debt
}

func (b *bucket) retry(l Limit, t, n int64) *big.Rat {
	over := b.used(l, t)
	over.Add(over, whole(n-l.Burst))
	return l.drain(over)
}

func (b *bucket) reset(l Limit, t int64) *big.Rat { return l.drain(b.used(l, t)) }

func (b *bucket) charge(l Limit, t, n int64) ticket {
	debt := b.used(l, t)
	b.write(l, t, debt.Add(debt, whole(n)))
	return ticket{units: n, ends: b.ends()}
}

// refund gives back what has not drained of a charge on top of which nothing was
// charged: the debt still ends when that charge made it end.
func (b *bucket) refund(l Limit, t int64, back ticket) {
	if !b.stored || b.ends().Cmp(back.ends) != 0 {
		return
	}
	switch debt := b.debtAt(t); {
	case debt.Sign() == 0: // all has drained
	case debt.Cmp(whole(back.units)) <= 0:
		*b = bucket{}
	default:
		b.write(l, t, debt.Sub(debt, whole(back.units)))
	}
}

func (b *bucket) write(l Limit, t int64, debt *big.Rat) {
	b.stored, b.debt, b.instant, b.rate = true, debt, t, l.rate()
}

// ends is when the debt is gone at the stored rate.
func (b *bucket) ends() *big.Rat {
	drained := new(big.Rat).Quo(b.debt, b.rate)
	return drained.Add(drained, whole(b.instant))
}
