package core

import "context"

// A Reservation is what [Limiter.Reserve], [Limiter.ReserveWait] and [ReserveAll] return: the [Result]
// of the decision, and the means to charge what the work really cost. End a Reservation once, by Settle
// when the work was done or by Cancel when it was not. Both free its slots of [InFlight]. The package
// documentation compares the ways to end a [Permit] and a Reservation under "Permits and reservations".
//
// The first call of Settle or Cancel counts, and later ones do nothing. All methods do nothing on a
// Reservation that is not Allowed, on one that [FailOpen] admitted, and on nil.
//
// The call is sent to Redis even if its context has already ended, because the context bounds only how
// long the caller waits for the reply. (If a context without a deadline is canceled meanwhile, the
// caller notices within the [Timeout].) The call is sent once and never retried. The error is
// [ErrUnavailable] if Redis could not answer, or the error of the context. After an error the units may
// stay held until the [Hold] is over, and they are charged then.
//
// A Reservation that the program loses without ending it is no longer renewed: its slots expire, and
// its units are charged when the [Hold] is over. The Limiter logs one warning about such Reservations. It
// watches every Reservation that it renews, but only one at a time of the others.
type Reservation struct {
	Result
	ending
}

// Settle ends r because the work was done, and charges what it really cost, from 0 to 1e9 units, in
// place of the units that are held. Any other cost is [ErrInvalidCost], which ends nothing.
//
// A cost above the estimate is charged too, whether it fits or not: the key is then denied until the
// debt is paid. A window owes at most 2^30 units, and a [SlidingWindowLog] at most 100,000. If the
// [Hold] is over, however long ago, the estimate has been charged at that moment, and Settle charges only
// what exceeds it. (If Redis lost the hold before that, the estimate is not charged at all.)
//
// A [LeakyBucket] has charged the estimate already: a cost of 0 gives the place in its queue back, as
// [Permit.Cancel] does, and any other cost keeps it.
func (r *Reservation) Settle(ctx context.Context, actual int64) error {
	return (*admission)(r).settle(ctx, actual)
}

// Cancel ends r because the work was not done. It charges nothing to any key: the units that were
// held are free again, all of them, unless the [Hold] is over. A [LeakyBucket] gives a place back as [Permit.Cancel] does.
func (r *Reservation) Cancel(ctx context.Context) error { return (*admission)(r).cancel(ctx) }

// Keep renews the held units in the background until r ends, for work that may take longer than the
// [Hold]. They are renewed at least every third of it. If Redis does not answer in that time, the hold
// expires and the units are charged. The middleware calls Keep for each request. The slots of
// [InFlight] are renewed without it.
func (r *Reservation) Keep() { (*admission)(r).renew() }

// Context returns a copy of ctx that is canceled if r loses its slots of [InFlight] before it ends, as
// [Permit.Context] does.
func (r *Reservation) Context(ctx context.Context) (context.Context, context.CancelFunc) {
	return (*admission)(r).context(ctx)
}
