package core

import "context"

// A Permit is what [Limiter.Acquire], [Limiter.AcquireWait] and [AcquireAll] return: the [Result] of the
// decision, and the means to end what it admitted. End a Permit once, by Release when the work was done
// or by Cancel when it was not. Both free its slots of [InFlight]. The package documentation compares
// the ways to end a Permit and a [Reservation] under "Permits and reservations".
//
// The first call of Release or Cancel counts, and later ones do nothing. Both do nothing on a Permit
// that is not Allowed, on one that [FailOpen] admitted, and on nil. So you can defer Release without
// checking the Permit.
//
// The call of Release or Cancel is sent to Redis even if its context has already ended. The deadline of
// the context bounds only how long the caller waits for the reply. If the context is canceled before
// its deadline, the caller can still wait, at most until the [Timeout] is over. The call is carried
// out at most once: it is not sent again if Redis may have carried it out. The error is
// [ErrUnavailable] if Redis could not answer, or the error of the context. After an error, it is
// possible that the slots stay taken until they expire, and that Cancel has given nothing back.
//
// If the program drops a Permit without ending it, the slots of the Permit are no longer renewed,
// and expire after their [SlotTTL]. The Limiter logs one warning about such Permits.
type Permit struct {
	Result
	ending
}

// Release ends p because the work was done. It frees the slots. What Acquire has charged stays charged.
// Release charges what [AcquireAll] has held.
func (p *Permit) Release(ctx context.Context) error { return (*admission)(p).release(ctx) }

// Cancel ends p because the work was not done. Cancel frees the slots. It gives back what Acquire
// charged, as far as that can be told apart from later charges:
//
//   - A [TokenBucket] and a [GCRA] get back what has not refilled yet, but only if no later request
//     was charged.
//   - A [LeakyBucket] gives the place in its queue to the next caller. The place stays taken if its
//     turn has already come; with a Delay of 0, its turn comes at once. The place also stays taken if
//     the queue was reset or evicted, or if its rate has changed.
//   - A [FixedWindow] and a [SlidingWindowLog] get the units back in the window that was charged. A
//     [SlidingWindowCounter] gets them back only while the window that was charged is the current one.
//   - Units that were spent from a lease return to it, while the lease lasts; see [Lease].
//
// The units of [AcquireAll] are only held until the Permit ends. So Cancel gives back exactly what
// was taken, unless the [Hold] is over.
func (p *Permit) Cancel(ctx context.Context) error { return (*admission)(p).cancel(ctx) }

// Context returns a copy of ctx that is canceled if p loses its slots of [InFlight] before p ends. Work
// that goes on after that can run at the same time as the work of another process that has taken the
// slots. [context.Cause] of the canceled context is [ErrSlotLost]. The middleware gives handlers such a
// context. Call the returned function when the work ends, to free what the context needs. If p has no
// slots, Context returns ctx itself.
//
//	ctx, cancel := p.Context(ctx)
//	defer cancel()
func (p *Permit) Context(ctx context.Context) (context.Context, context.CancelFunc) {
	return (*admission)(p).context(ctx)
}
