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

// An admission is what a decision has admitted and its caller must end. A [Permit] and a [Reservation]
// are admissions with the methods that make sense for them. All three types have the same fields, so a
// pointer to one can be converted to a pointer to another, which costs nothing.
type admission struct {
	Result
	ending
}

// An ending is what an admission needs to end.
type ending struct {
	limiter *Limiter
	hold    *hold.Hold // nil if there is nothing to end
	multi   *multiCall // the admissions of several keys, which are ended instead; or nil
}

// A multiCall is what one call asks of several keys, and then what it has of them.
type multiCall struct {
	n        int64
	members  []member
	redisErr error        // why Redis failed to decide on all of them at once; or nil
	admitted []keyedEvent // what observers hear of once all have admitted
}

// A keyedEvent is an event of a key that observers have not heard of yet.
type keyedEvent struct {
	events *emitter
	key    string
	event  Event
}

// A member is one key of them.
type member struct {
	Keyed

	position int // of the key among the arguments of the call, or of the first of several equal ones

	held  *admission    // nil until it is admitted
	stamp denials.Stamp // of a decision on all by one script
}

// settle ends a with a cost of actual units in place of what is held.
func (a *admission) settle(ctx context.Context, actual int64) error {
	if a.isMulti() {
		return a.multi.settle(ctx, actual, (*admission).settle)
	}
	return a.settleBy(ctx, actual, nil)
}

func (a *admission) isMulti() bool { return a != nil && a.multi != nil }

// settleBy settles the admission of a single key: in the background if later says so, or else at once.
func (a *admission) settleBy(ctx context.Context, actual int64, later hold.Background) error {
	if a == nil || a.hold == nil {
		return nil
	}
	if err := checkActual(actual); err != nil {
		return err
	}
	l := a.limiter
	l.catchUp()
	defer func() { l.gaveBack(a.hold) }() // a is in use until then, and not dropped
	return l.family.failure(ctx, l.family.renewer.End(ctx, a.hold, actual, later))
}

// checkActual returns the error of a cost that cannot be settled.
func checkActual(actual int64) error {
	if actual < 0 || actual > maxActual {
		return fmt.Errorf("%w: it is %d, allowed is 0 to %d", ErrInvalidCost, actual, maxActual)
	}
	return nil
}

// roomFor is how many such requests must fit beside one that is settled in the background. A client
// sends several before that arrives, and a login is not to be denied by units that are free.
const roomFor = 16

// settleLater is settle for a middleware, whose client need not wait for it. The settlement is sent in
// the background if so many more requests fit, beside what is held and what is charged instead, that a
// late settlement changes no decision. Slots are never freed in the background, because others wait for
// them. If the settlement is lost, what is held is charged.
func (a *admission) settleLater(ctx context.Context, actual int64) error {
	if a.isMulti() {
		return a.multi.settle(ctx, actual, (*admission).settleLater)
	}
	if a == nil || a.hold == nil {
		return nil
	}
	_, remote := a.hold.Keeper.(*inRedis)
	if !remote || a.hold.HasSlots() || a.remaining()/roomFor < max(a.hold.N, actual) {
		return a.settle(ctx, actual)
	}
	return a.settleBy(ctx, actual, func(send func() error) bool {
		return a.hold.Set.Store.Later(send, a.settled)
	})
}

// cancelLater is cancel, in the background where settleLater settles there.
func (a *admission) cancelLater(ctx context.Context) error {
	if a.isMulti() {
		return each(a.multi.members, func(m member) error { return m.held.settleLater(ctx, 0) })
	}
	return a.settleLater(ctx, 0)
}

// settled is called after a settlement for which nobody waited. The observers and the log have already
// been notified of its error.
func (a *admission) settled(err error) {
	ctx, l := context.Background(), a.limiter
	l.gaveBack(a.hold)
	_ = l.family.failure(ctx, err) // it counts what was too much for this process
}

// gaveBack forgets the denials of h's key, and wakes a caller that waits for its units. Callers that wait
// for slots are woken by the Renewer's Freed event.
func (l *Limiter) gaveBack(h *hold.Hold) {
	l.family.denials.Forget(h.Key, h.Set)
	if !h.HasSlots() {
		l.family.lines.Free(h.Key)
	}
}

// cancel ends a without charging anything to any key.
func (a *admission) cancel(ctx context.Context) error {
	if a.isMulti() {
		return each(a.multi.members, func(m member) error { return m.held.cancel(ctx) })
	}
	return a.settle(ctx, 0)
}

// release ends a with the cost that was asked for.
func (a *admission) release(ctx context.Context) error {
	if a.isMulti() {
		return each(a.multi.members, func(m member) error { return m.held.release(ctx) })
	}
	if a == nil || a.hold == nil {
		return nil
	}
	return a.settle(ctx, a.hold.N)
}

// renew renews the units that are held until a ends.
func (a *admission) renew() {
	if a.isMulti() {
		for _, m := range a.multi.members {
			m.held.renew()
		}
		return
	}
	if a == nil || a.hold == nil || !a.hold.HasUnits() {
		return
	}
	a.limiter.family.renewer.Keep(a.hold)
	if !a.hold.HasSlots() {
		a.limiter.watch(a, drop)
	}
}

// context returns a copy of ctx that is canceled when a loses its slots, or ctx itself if it has none.
func (a *admission) context(ctx context.Context) (context.Context, context.CancelFunc) {
	if a.isMulti() {
		return contextOf(ctx, a.multi.members)
	}
	if a == nil || a.hold == nil || !a.hold.HasSlots() {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	a.hold.OnLost(func() { cancel(ErrSlotLost) })
	return ctx, func() {
		cancel(nil)
		runtime.KeepAlive(a) // until then the slots are in use
	}
}

// watch calls f when nobody refers to a any more.
func (l *Limiter) watch(a *admission, f func(dropped)) {
	runtime.AddCleanup(a, f, dropped{l.family, a.hold})
}

// A dropped is what is left of an admission to which nobody refers any more.
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
		"a Permit or a Reservation was dropped and never ended (by Release, Settle or Cancel): what it holds expires, and units are charged then")
}

// holdEvents returns the functions that notify the observers of slots and of canceled admissions.
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
func (t *multiCall) settle(ctx context.Context, actual int64, end func(a *admission, ctx context.Context, actual int64) error) error {
	if err := checkActual(actual); err != nil {
		return err
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

// contextOf is admission.context for several members.
func contextOf(ctx context.Context, members []member) (context.Context, context.CancelFunc) {
	if len(members) == 0 {
		return ctx, func() {}
	}
	ctx, cancel := members[0].held.context(ctx)
	ctx, others := contextOf(ctx, members[1:])
	return ctx, func() {
		others()
		cancel()
	}
}
