package core

import (
	"context"

	"github.com/redislimit/redislimit/internal/algorithm"
)

// Acquire decides and charges as [Limiter.AllowN] does. What it admits has an end: the slots of
// [InFlight] are taken until then, and what other limits charged may be taken back, by
// [Reservation.Cancel].
//
//	r, err := lim.Acquire(ctx, key, 1)
//	// ... if r.Allowed:
//	defer func() { _ = r.Release(ctx) }()
//
// A denial is a Reservation that is not Allowed. Errors are those of AllowN, and there is no
// Reservation then.
func (l *Limiter) Acquire(ctx context.Context, key string, n int64) (*Reservation, error) {
	return l.acquire(ctx, call{key: key, n: n, op: algorithm.OpCharge})
}

// Reserve decides as [Limiter.AllowN] does on n units, whose true cost is known only later: n is an
// estimate. What is admitted is held, which counts like a charge for all other decisions, and
// [Reservation.Settle] charges what it really cost:
//
//	r, err := lim.Reserve(ctx, key, 500)
//	// ... if r.Allowed: do it
//	err = r.Settle(ctx, 7312)
//
// Units are held for a while only; see [Hold]. If they are not settled by then, because the process
// died or was slow, they are charged: what is admitted is to be settled before that, or kept by
// [Reservation.Keep]. While units are held, the RetryAfter and ResetAfter of others are estimates:
// as if what is held had been charged. Where only that denies, which may be over at any time,
// RetryAfter is a second at most. Slots of [InFlight] are taken as by Acquire.
//
// A [LeakyBucket] has places in a queue and holds nothing: there n units are charged.
//
// Errors are those of AllowN. After [ErrUnavailable] n units may be held, and are charged when the
// hold expires.
func (l *Limiter) Reserve(ctx context.Context, key string, n int64) (*Reservation, error) {
	return l.acquire(ctx, call{key: key, n: n, op: algorithm.OpReserve})
}

// acquire decides on c, and returns what it admits.
func (l *Limiter) acquire(ctx context.Context, c call) (*Reservation, error) {
	if err := c.check(ctx); err != nil {
		return nil, err
	}
	r := &Reservation{limiter: l}
	return l.acquired(c, r, l.decide(ctx, c, target{&r.Result, r}))
}

// acquired returns r, which has been decided on, unless that failed.
func (l *Limiter) acquired(c call, r *Reservation, err error) (*Reservation, error) {
	if err != nil {
		return nil, err
	}
	if r.Allowed && c.n == 0 && c.op == algorithm.OpReserve { // nothing is held, and what it cost is charged
		l.holdNone(c, target{&r.Result, r})
	}
	if r.hold != nil {
		l.family.renewer.Add(r.hold)
		switch {
		case r.hold.HasSlots():
			l.watch(r, drop)
		case r.hold.HasUnits() && !l.family.sampling.Load() && !l.family.sampling.Swap(true): // to watch each takes too long
			l.watch(r, sample)
		}
	}
	return r, nil
}

// holdNone gives the Reservation a Hold of no units, so that after an estimate of 0 Settle charges
// the true cost where the decision was made.
func (l *Limiter) holdNone(c call, to target) {
	switch to.Source {
	case SourceNone:
	case SourceFallback:
		to.attach(to.newHold(l, c, l.by.Fallback), memoryKeeper{l.family.fallback})
	default:
		to.attach(to.newHold(l, c, l.by), l.keeper)
	}
}
