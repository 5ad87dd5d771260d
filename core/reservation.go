package core

import "context"

// A Reservation is what [Limiter.Reserve], [Limiter.ReserveWait] and [ReserveAll] return: the [Result]
// of the decision, and the means to charge what the work really cost. End a Reservation once, by Settle
// when the work was done or by Cancel when it was not. Both free its slots of [InFlight]. The package
// documentation compares the ways to end a [Permit] and a Reservation under "Permits and reservations".
//
// The first call of Settle or Cancel counts, and later ones do nothing. Settle, Cancel and Keep do
// nothing on a Reservation that is not Allowed, on one that [FailOpen] admitted, and on nil.
//
// The call of Settle or Cancel is sent to Redis even if its context has already ended. The deadline of
// the context bounds only how long the caller waits for the reply. If the context is canceled before
// its deadline, the caller can still wait, at most until the [Timeout] is over. The call is carried
// out at most once: it is not sent again if Redis may have carried it out. The error is
// [ErrUnavailable] if Redis could not answer, or the error of the context. After an error, it is
// possible that the units stay held until the [Hold] is over, and are then charged.
//
// If the program drops a Reservation without ending it, the Reservation is no longer renewed: its slots
// expire, and its units are charged when the [Hold] is over. The Limiter logs one warning about such
// Reservations. It notices every Reservation that was being renewed (one with slots, or after Keep). It
// watches other Reservations only one at a time, so it can take long until it notices that one of them
// was dropped.
type Reservation struct {
	Result
	ending
}

// Settle ends r because the work was done, and charges what it really cost, from 0 to 1e9 units, in
// place of the units that are held. For any other cost, Settle returns [ErrInvalidCost] and does
// not end r.
//
// A cost above the estimate is charged even if it does not fit: the key is then denied until the debt is
// paid. A window counts at most 2^30 units, and a [SlidingWindowLog] is charged at most 100,000 units
// by one Settle; the rest of the cost is not charged. If the [Hold] is over, however long ago, the
// estimate was charged when the Hold ended, and Settle charges only what exceeds the estimate. (If
// Redis lost the held units before the Hold ended, the estimate is not charged at all.)
//
// A [LeakyBucket] has charged the estimate already: a cost of 0 gives the place in its queue back, as
// [Permit.Cancel] does, and any other cost keeps it.
func (r *Reservation) Settle(ctx context.Context, actual int64) error {
	return (*admission)(r).settle(ctx, actual)
}

// Cancel ends r because the work was not done. It charges nothing to any key: all units that were held are
// free again, unless the [Hold] is over. A [LeakyBucket] gives a place back as [Permit.Cancel] does.
func (r *Reservation) Cancel(ctx context.Context) error { return (*admission)(r).cancel(ctx) }

// Keep renews the held units in the background until r ends, for work that can take longer than the [Hold].
// The units are renewed at least three times in each Hold. If no renewal succeeds before the Hold is over, the
// units are charged. The middleware calls Keep for each Reservation that it makes. Slots of [InFlight] are
// renewed without Keep. Units from a [Lease] are first held as a part of the lease. If they are not settled
// within about a quarter of its duration, they are renewed once, and from then on have a Hold of their own.
func (r *Reservation) Keep() { (*admission)(r).renew() }

// Context returns a copy of ctx that is canceled if r loses its slots of [InFlight] before it ends, as
// [Permit.Context] does.
func (r *Reservation) Context(ctx context.Context) (context.Context, context.CancelFunc) {
	return (*admission)(r).context(ctx)
}
