package core

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/redislimit/redislimit/internal/denials"
	"github.com/redislimit/redislimit/internal/hold"
)

// maxActual bounds the cost that Settle charges.
const maxActual = 1_000_000_000

// A Reservation is what [Limiter.Acquire], [Limiter.Reserve] or their kin admitted, and is to be
// ended, once, by Settle, Cancel or Release: the first of them counts, and all of them free its
// slots of [InFlight]. On what was denied, or admitted by [FailOpen], and on nil they do nothing.
//
// They are sent even if their context has ended: it bounds only how long they wait for the reply (a
// context without a deadline that is canceled meanwhile is noticed within the Timeout). Each is
// sent once. Their errors are [ErrUnavailable] if Redis could not answer, and that of the context:
// what they were to end then may be held until it expires.
//
// After a Reservation was dropped without being ended, its slots and kept units are renewed no
// longer, and expire. A warning is logged, once for each Limiter. Of those with units that are not
// kept, one at a time is watched.
type Reservation struct {
	Result

	limiter *Limiter
	hold    *hold.Hold // nil if there is nothing to end
	multi   *multiCall // those of several keys, which are ended in its place; or nil
}

// A multiCall is what one call asks of several keys, and then what it has of them.
type multiCall struct {
	n        int64
	fixed    bool // Settle takes 0 and n alone, as after Acquire
	members  []member
	redisErr error // why Redis failed to decide on all of them at once; or nil
}

// A member is one key of them.
type member struct {
	Keyed

	position int // of the key among the arguments of the call, or of the first of several equal ones

	held  *Reservation  // nil until it is admitted
	stamp denials.Stamp // of a decision on all by one script
}

// Settle ends r: it charges what the work really cost, from 0 to 1e9 units, in place of what
// [Limiter.Reserve] held. More than was held is charged, too, whether it fits or not: the key is
// denied until that is paid. What a key owes is bounded: to 2^30 units in a window, and to 100,000
// in a [SlidingWindowLog]. If the hold has expired, however long ago, only what exceeds it is
// charged: what was held has been charged then, unless Redis lost it before.
//
// After [Limiter.Acquire], and of a [LeakyBucket], what was charged is kept or taken back: 0 takes
// it back as Cancel says. Acquire's n keeps it, and any other cost is [ErrInvalidCost], which ends
// nothing.
func (r *Reservation) Settle(ctx context.Context, actual int64) error {
	if r.isMulti() {
		return r.multi.settle(ctx, actual, (*Reservation).Settle)
	}
	return r.settle(ctx, actual, nil)
}

func (r *Reservation) isMulti() bool { return r != nil && r.multi != nil }

func (r *Reservation) settle(ctx context.Context, actual int64, later hold.Background) error {
	if r == nil || r.hold == nil {
		return nil
	}
	switch {
	case actual < 0 || actual > maxActual:
		return fmt.Errorf("%w: it is %d, allowed is 0 to %d", ErrInvalidCost, actual, maxActual)
	case !r.hold.Reserved && actual != 0 && actual != r.hold.N:
		return fmt.Errorf("%w: it is %d, and after Acquire allowed are 0 and %d", ErrInvalidCost, actual, r.hold.N)
	}
	l := r.limiter
	l.catchUp()
	defer func() { l.gaveBack(r.hold) }() // r is in use until then, and not dropped
	return l.family.failure(ctx, l.family.renewer.End(ctx, r.hold, actual, later))
}

// roomFor is how many such requests must fit beside one that is settled in the background. A client
// sends several before that arrives, and a login is not to be denied by units that are free.
const roomFor = 16

// settleLater is Settle for a middleware, whose client is not to wait. It is sent in the background
// if so many more requests fit, beside what is held and beside what is charged instead, that a late
// Settle changes no decision. With slots it is not: others wait for them. If it is lost, what is
// held is charged.
func (r *Reservation) settleLater(ctx context.Context, actual int64) error {
	if r.isMulti() {
		return r.multi.settle(ctx, actual, (*Reservation).settleLater)
	}
	if r == nil || r.hold == nil {
		return nil
	}
	_, remote := r.hold.Keeper.(*inRedis)
	if !remote || r.hold.HasSlots() || r.remaining()/roomFor < max(r.hold.N, actual) {
		return r.Settle(ctx, actual)
	}
	return r.settle(ctx, actual, func(send func() error) bool {
		return r.hold.Set.Store.Later(send, r.settled)
	})
}

// cancelLater is Cancel as settleLater is Settle.
func (r *Reservation) cancelLater(ctx context.Context) error {
	if r.isMulti() {
		return each(r.multi.members, func(m member) error { return m.held.settleLater(ctx, 0) })
	}
	return r.settleLater(ctx, 0)
}

// settled ends a Settle that nobody waited for. Its error has been told of as that of any call.
func (r *Reservation) settled(err error) {
	ctx, l := context.Background(), r.limiter
	l.gaveBack(r.hold)
	_ = l.family.failure(ctx, err) // it counts what was too much for this process
}

// gaveBack forgets the denials of h's key, and wakes who waits for its units. Who waits for slots
// is woken by the Renewer's Freed event.
func (l *Limiter) gaveBack(h *hold.Hold) {
	l.family.denials.Forget(h.Key, h.Set)
	if !h.HasSlots() {
		l.family.lines.Free(h.Key)
	}
}

// Cancel ends r because the work was not done. It charges nothing to any key. What Reserve held is
// free again, exactly. What Acquire charged is taken back as far as it can be told apart from later
// charges:
//
//   - of a bucket only while nobody has charged on top of it, and then what has not drained;
//   - of a [LeakyBucket] the place, for the next who comes, unless it has begun (a Delay of 0 begins
//     at once), or the queue was reset, evicted or changed its rate since;
//   - of a window or a log only to the window that was charged, and of a [SlidingWindowCounter]
//     only while that is the current one;
//   - of a lease while that lives; see [Lease].
func (r *Reservation) Cancel(ctx context.Context) error {
	if r.isMulti() {
		return each(r.multi.members, func(m member) error { return m.held.Cancel(ctx) })
	}
	return r.Settle(ctx, 0)
}

// Release is Settle with the cost that was asked for: the work was done.
func (r *Reservation) Release(ctx context.Context) error {
	if r.isMulti() {
		return each(r.multi.members, func(m member) error { return m.held.Release(ctx) })
	}
	if r == nil || r.hold == nil {
		return nil
	}
	return r.Settle(ctx, r.hold.N)
}

// Keep has the units that Reserve held renewed until r ends, in the background, for work that may
// outlast the [Hold]: at least every third of it. The middleware calls it. If Redis does not answer
// meanwhile, the hold expires and is charged. Slots of [InFlight] are renewed without it.
func (r *Reservation) Keep() {
	if r.isMulti() {
		for _, m := range r.multi.members {
			m.held.Keep()
		}
		return
	}
	if r == nil || r.hold == nil || !r.hold.HasUnits() {
		return
	}
	r.limiter.family.renewer.Keep(r.hold)
	if !r.hold.HasSlots() {
		r.limiter.watch(r, drop)
	}
}

// Context returns a copy of ctx that is canceled when r loses its slots of [InFlight] before it
// ends, with [ErrSlotLost] as its [context.Cause]: others may do the work then. The middleware
// gives handlers such a context. The returned function, which must be called, frees what the
// context needs. If r has no slots, it is ctx itself that is returned.
//
//	ctx, cancel := r.Context(ctx)
//	defer cancel()
func (r *Reservation) Context(ctx context.Context) (context.Context, context.CancelFunc) {
	if r.isMulti() {
		return contextOf(ctx, r.multi.members)
	}
	if r == nil || r.hold == nil || !r.hold.HasSlots() {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	r.hold.OnLost(func() { cancel(ErrSlotLost) })
	return ctx, func() {
		cancel(nil)
		runtime.KeepAlive(r) // until then the slots are in use
	}
}

// watch has f be called when nobody has r any more.
func (l *Limiter) watch(r *Reservation, f func(dropped)) {
	runtime.AddCleanup(r, f, dropped{l.family, r.hold})
}

// A dropped is what is left of a Reservation that nobody has any more.
type dropped struct {
	of   *family
	hold *hold.Hold
}

// drop stops its renewals: nobody can end it any more.
func drop(d dropped) {
	if d.of.renewer.Drop(d.hold) {
		d.warn()
	}
}

// sample finds out whether it was ended, and if so has another one be watched.
func sample(d dropped) {
	if d.hold.Ended() {
		d.of.sampling.Store(false)
	} else {
		d.warn()
	}
}

func (d dropped) warn() {
	d.of.events.warnOnce(context.Background(),
		"a Reservation was dropped without Settle, Cancel or Release: what it holds expires, and units are charged then")
}

// holdEvents are what the observers are told of slots, and of what is cancelled.
func (f *family) holdEvents() hold.Events {
	slots := func(h *hold.Hold, n int64) {
		if len(f.events.observers) == 0 {
			return
		}
		for i, m := range h.Set.Members {
			if m.Slots {
				f.events.tell(Event{Kind: EventSlots, Result: Result{LimiterName: f.name, LimitName: h.Set.Names[i]}, Cost: n})
			}
		}
	}
	return hold.Events{
		Slots:    slots,
		Freed:    func(h *hold.Hold) { f.lines.Free(h.Key) },
		Lost:     func(h *hold.Hold) { f.events.tell(Event{Kind: EventSlotLost, Cost: h.N, Err: ErrSlotLost}) },
		Canceled: func(h *hold.Hold) { f.events.tell(Event{Kind: EventCancel, Cost: h.N}) },
	}
}

// settle ends each member by end: with its own cost, or with actual in place of n.
func (t *multiCall) settle(ctx context.Context, actual int64, end func(r *Reservation, ctx context.Context, actual int64) error) error {
	switch {
	case actual < 0 || actual > maxActual:
		return fmt.Errorf("%w: it is %d, allowed is 0 to %d", ErrInvalidCost, actual, maxActual)
	case t.fixed && actual == 0:
		return each(t.members, func(m member) error { return end(m.held, ctx, 0) })
	case t.fixed && actual != t.n:
		return fmt.Errorf("%w: it is %d, and after AcquireAll allowed are 0 and %d", ErrInvalidCost, actual, t.n)
	}
	return each(t.members, func(m member) error { return end(m.held, ctx, min(m.cost(actual), maxActual)) })
}

// each calls f with each of the members, also after one has failed.
func each(members []member, f func(member) error) error {
	var failed error
	for _, m := range members {
		failed = errors.Join(failed, f(m))
	}
	return failed
}

// contextOf is [Reservation.Context] of several.
func contextOf(ctx context.Context, members []member) (context.Context, context.CancelFunc) {
	if len(members) == 0 {
		return ctx, func() {}
	}
	ctx, cancel := members[0].held.Context(ctx)
	ctx, others := contextOf(ctx, members[1:])
	return ctx, func() {
		others()
		cancel()
	}
}
