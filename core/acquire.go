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
	req := l.newRequest(key, n, algorithm.OpCharge)
	defer req.recycle()
	return l.acquire(ctx, req)
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
	req := l.newRequest(key, n, algorithm.OpReserve)
	defer req.recycle()
	return l.acquire(ctx, req)
}

// acquire decides req, and returns a Reservation with the Result. The Reservation holds what was
// admitted, until it is ended.
func (l *Limiter) acquire(ctx context.Context, req *request) (*Reservation, error) {
	if err := req.check(ctx); err != nil {
		return nil, err
	}
	req.call.Ends = true
	r := &Reservation{limiter: l}
	if err := l.decide(ctx, req, &r.Result); err != nil {
		return nil, err
	}
	if r.hold = req.reply.Hold; r.hold != nil {
		l.keep(r)
	}
	return r, nil
}

// keep renews what r holds from now on, and warns if r is dropped before it is ended.
func (l *Limiter) keep(r *Reservation) {
	l.family.renewer.Add(r.hold)
	switch {
	case r.hold.HasSlots():
		l.watch(r, drop)
	case r.hold.HasUnits() && !l.family.sampling.Load() && !l.family.sampling.Swap(true): // to watch each takes too long
		l.watch(r, sample)
	}
}
