package core

import "context"

// A Permit is what [Limiter.Acquire], [Limiter.AcquireWait] and [AcquireAll] return: the [Result] of the
// decision, and the means to end what it admitted. End a Permit once, by Release when the work was done
// or by Cancel when it was not. Both free its slots of [InFlight]. The package documentation compares
// the ways to end a Permit and a [Reservation] under "Permits and reservations".
//
// The first call of Release or Cancel counts, and later ones do nothing. Both do nothing on a Permit
// that is not Allowed, on one that [FailOpen] admitted, and on nil, so a deferred Release needs no test.
//
// The call is sent to Redis even if its context has already ended, because the context bounds only how
// long the caller waits for the reply. (If a context without a deadline is canceled meanwhile, the
// caller notices within the [Timeout].) The call is sent once and never retried. The error is
// [ErrUnavailable] if Redis could not answer, or the error of the context. After an error the slots may
// stay taken until they expire, and a charge that Cancel was to give back may stay for good.
//
// A Permit with slots that the program loses without ending it is no longer renewed, so its slots
// expire after their [SlotTTL]. The Limiter logs one warning about that.
type Permit struct {
	Result
	ending
}

// Release ends p because the work was done: what Acquire charged stays charged, and the slots are free.
// The units of [AcquireAll], which are held until the Permit ends, are charged.
func (p *Permit) Release(ctx context.Context) error { return (*admission)(p).release(ctx) }

// Cancel ends p because the work was not done. It frees the slots, and gives back what Acquire charged
// as far as the charge can be told apart from later charges:
//
//   - A bucket gives back what has not drained yet, but only while nobody has charged on top of it.
//   - A [LeakyBucket] gives the place in its queue to the next caller, unless the turn of the place has
//     come (at once if the Delay was 0), or the queue was reset, was evicted or changed its rate.
//   - A fixed window and a log give back to the window that was charged. A [SlidingWindowCounter] gives
//     back only while that is the current window.
//   - A lease takes back what it gave, while the lease lasts; see [Lease].
//
// After [AcquireAll], whose units are only held until the Permit ends, Cancel gives back exactly what
// was taken, unless the [Hold] is over.
func (p *Permit) Cancel(ctx context.Context) error { return (*admission)(p).cancel(ctx) }

// Context returns a copy of ctx that is canceled if p loses its slots of [InFlight] before it ends: then
// another process may do the same work. [context.Cause] of it is [ErrSlotLost]. The middleware gives
// handlers such a context. Call the returned function when the work ends, to free what the context
// needs. If p has no slots, Context returns ctx itself.
//
//	ctx, cancel := p.Context(ctx)
//	defer cancel()
func (p *Permit) Context(ctx context.Context) (context.Context, context.CancelFunc) {
	return (*admission)(p).context(ctx)
}
