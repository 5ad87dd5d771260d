package model

import "math/big"

// The bucket algorithms are modelled alike.
var (
	TokenBucket = register("token_bucket", algorithm{new: newBucket, bucket: true})
	LeakyBucket = register("leaky_bucket", algorithm{new: newBucket, bucket: true, delays: true})
	GCRA        = register("gcra", algorithm{new: newBucket, bucket: true})
)

// bucket is the store of token bucket, leaky bucket and GCRA: what was used and has
// not drained yet, at the instant it was written, with the rate of that moment.
// Tokens are capacity less debt, the backlog is the debt, and TAT is instant plus
// debt*T/L. What is kept is when the debt ends, so that after a step back of the
// clock there is more of it.
type bucket struct {
	stored  bool
	debt    *big.Rat // units
	instant int64
	rate    *big.Rat // units per microsecond, in force when this was written
}

func newBucket() store { return &bucket{} }

func (b *bucket) clock(now int64) int64 { return now }

// debtAt drains at the stored rate, also under a new limit: what was used before a
// change must not be valued afresh by it. Before instant it grows, as TAT-t does.
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

// used clips the debt to the capacity, which a step back or a lowered burst may
// have put below it. The clip is a view: it is never written, because nothing is
// admitted while it applies.
func (b *bucket) used(l Limit, t int64) *big.Rat {
	debt := b.debtAt(t)
	if full := whole(l.Burst); debt.Cmp(full) > 0 {
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
	debt := b.debtAt(t)
	b.write(l, t, debt.Add(debt, whole(n)))
	return ticket{units: n}
}

// refund takes from the debt as it is, not from the clipped view of it. Units in a
// bucket are all alike: whatever is left of them can be given back. Where nothing
// is left nothing changes, so that a step back of the clock gains nothing by it.
func (b *bucket) refund(l Limit, t int64, back ticket) {
	debt := b.debtAt(t)
	if debt.Sign() == 0 {
		return
	}
	if debt.Sub(debt, whole(back.units)).Sign() <= 0 {
		*b = bucket{}
		return
	}
	b.write(l, t, debt)
}

func (b *bucket) write(l Limit, t int64, debt *big.Rat) {
	b.stored, b.debt, b.instant, b.rate = true, debt, t, big.NewRat(l.Count, l.Period)
}

// expires is when the debt is gone at the stored rate.
func (b *bucket) expires() *big.Rat {
	if !b.stored {
		return nil
	}
	drained := new(big.Rat).Quo(b.debt, b.rate)
	return drained.Add(drained, whole(b.instant))
}
