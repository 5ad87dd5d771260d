package core

import (
	"context"

	"github.com/redislimit/redislimit/internal/algorithm"
)

// Acquire decides and charges as [Limiter.AllowN] does, for work that has an end. It returns a [Permit],
// which keeps slots of [InFlight] until the work ends, and can give back what other limits have charged.
//
//	p, err := lim.Acquire(ctx, key, 1)
//	// ... if p.Allowed:
//	defer func() { _ = p.Release(ctx) }()
//
// A denial is a Permit that is not Allowed. The errors are the same as with AllowN, but Acquire
// accepts a Limiter with InFlight. After an error the Permit is nil.
func (l *Limiter) Acquire(ctx context.Context, key string, n int64) (*Permit, error) {
	req := l.newRequest(key, n, algorithm.OpCharge)
	defer req.recycle()
	a, err := l.acquire(ctx, req)
	return (*Permit)(a), err
}

// Reserve decides now about work whose true cost is known only when it is done. It admits or denies n
// units, which are an estimate, and holds them if it admits: they count for all other decisions as if
// they were charged. [Reservation.Settle] then charges the true cost instead. This is not what Reserve
// means in golang.org/x/time/rate, where it books a time in the future for which the caller waits. Here
// admitted work can begin at once, and nothing is booked for work that is denied. ([Limiter.Wait]
// waits.)
//
//	r, err := lim.Reserve(ctx, key, 500)
//	// ... if r.Allowed: do it
//	err = r.Settle(ctx, 7312)
//
// Units are held only for the time that [Hold] sets. If they are not settled within that time, because
// the process died or was slow, they are charged. So settle within that time, or call
// [Reservation.Keep] for work that can take longer. Slots of [InFlight] are taken as by Acquire, and
// are renewed without Keep. A [LeakyBucket] has places in a queue, which cannot be held: with a
// LeakyBucket, Reserve charges the n units at once.
//
// While units of a key are held, the RetryAfter and ResetAfter of other requests with the key are
// estimates, computed as if the units had been charged. If a request is denied only because of held
// units, its RetryAfter is at most a second, because these units can be given back at any time.
//
// A denial is a Reservation that is not Allowed. The errors are the same as with AllowN, but Reserve
// accepts a Limiter with InFlight. After an error the Reservation is nil. After [ErrUnavailable], it is
// possible that n units are held; these are charged when the Hold is over. After the error of ctx, held
// units are given back in the background when the reply of Redis comes.
func (l *Limiter) Reserve(ctx context.Context, key string, n int64) (*Reservation, error) {
	req := l.newRequest(key, n, algorithm.OpReserve)
	defer req.recycle()
	a, err := l.acquire(ctx, req)
	return (*Reservation)(a), err
}

// acquire decides req, and returns the Result as an admission. The caller must end it if it is Allowed.
func (l *Limiter) acquire(ctx context.Context, req *request) (*admission, error) {
	if err := req.check(ctx); err != nil {
		return nil, err
	}
	req.call.Ends = true
	a := &admission{ending: ending{limiter: l}}
	if err := l.decide(ctx, req, &a.Result); err != nil {
		return nil, err
	}
	if a.hold = req.reply.Hold; a.hold != nil {
		l.keep(a)
	}
	return a, nil
}

// keep renews the slots of a from now on. It may also watch a, so that the Limiter can warn if the program
// drops a, that is, keeps no reference to it, without having ended it. Watching takes time. Therefore keep
// watches every admission that has slots, but only one at a time of those that hold units and no slots
// (see sample), and none that holds nothing.
func (l *Limiter) keep(a *admission) {
	l.family.renewer.Add(a.hold)
	switch {
	case a.hold.HasSlots():
		l.watch(a, drop)
	case a.hold.HasUnits() && !l.family.sampling.Load() && !l.family.sampling.Swap(true):
		l.watch(a, sample)
	}
}
