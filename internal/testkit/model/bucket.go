package model

import "math/big"

// The bucket algorithms have the same model.
var (
	TokenBucket = register("token_bucket", algorithm{new: newBucket, bucket: true})
	LeakyBucket = register("leaky_bucket", algorithm{new: newBucket, bucket: true, delays: true})
	GCRA        = register("gcra", algorithm{new: newBucket, bucket: true})
)

// bucket is the store of token bucket, leaky bucket and GCRA: the debt, which is what
// was used and has not drained yet, at the instant when it was written, with the rate
// of that moment. The tokens are the capacity less the debt, the queue is the debt, and
// the TAT is instant + debt*T/L.
type bucket struct {
	stored  bool
	debt    *big.Rat // units
	instant int64
	rate    *big.Rat // units per microsecond, in force when this was written
}

func newBucket() store { return &bucket{} }

func (b *bucket) clock(now int64) int64 { return now }

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

// used is the debt, but at most the capacity, which may be less after a step back of the
// clock or a lowered burst. The lower number is never stored, because nothing is
// admitted then.
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

// refund reduces the debt itself, which may be above the capacity, whichever charge it
// is of. If there is no debt at t, nothing changes, so that a step back of the clock
// after it gains nothing.
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
