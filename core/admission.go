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
	multi   *multiCall // nil, or the admissions of several keys, which are ended instead
}

// A multiCall is a decision on several keys, and the admissions that it has obtained.
type multiCall struct {
	n        int64
	members  []member
	redisErr error        // why Redis failed to decide on all keys at once, or nil
	admitted []keyedEvent // the events of admissions, which are emitted when all keys have admitted
}

// A keyedEvent is an event with its key, which was not passed to the observers yet.
type keyedEvent struct {
	events *emitter
	key    string
	event  Event
}

// A member is one of the keys of a multiCall.
type member struct {
	Keyed

	position int // the index of the key among the arguments of the call; of the first one if it was given several times

	held  *admission    // nil until the key has admitted
	stamp denials.Stamp // of a joint decision
}

// settle ends a, and charges actual units instead of the held ones.
func (a *admission) settle(ctx context.Context, actual int64) error {
	if a.isMulti() {
		return a.multi.settle(ctx, actual, (*admission).settle)
	}
	return a.settleBy(ctx, actual, nil)
}

func (a *admission) isMulti() bool { return a != nil && a.multi != nil }

// settleBy settles the admission of a single key. If later is not nil, it may send the settlement
// in the background.
func (a *admission) settleBy(ctx context.Context, actual int64, later hold.Background) error {
	if a == nil || a.hold == nil {
		return nil
	}
	if err := checkActual(actual); err != nil {
		return err
	}
	l := a.limiter
	l.catchUp()
	defer func() { l.gaveBack(a.hold) }() // keeps a alive until then, so that it does not count as dropped
	return l.family.failure(ctx, l.family.renewer.End(ctx, a.hold, actual, later))
}

// checkActual returns the error of a cost that Settle refuses.
func checkActual(actual int64) error {
	if actual < 0 || actual > maxActual {
		return fmt.Errorf("%w: it is %d, allowed is 0 to %d", ErrInvalidCost, actual, maxActual)
	}
	return nil
}

// roomFor is how many more such requests must fit before a settlement is sent in the background. A
// client may send several requests before the settlement arrives, and none of them, such as a
// login, should be denied because of units that are already free.
const roomFor = 16

// settleLater is settle for a middleware, whose client need not wait for it. The settlement is sent in
// the background if there is room for roomFor more requests, counting the held units or the actual cost,
// whichever is larger: then a late settlement changes no decision. Slots are never freed in the
// background, because others wait for them. If the settlement is lost, the held units are charged.
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
	_ = l.family.failure(ctx, err) // counts an overload of this process
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

// release ends a, and charges the units that were admitted.
func (a *admission) release(ctx context.Context) error {
	if a.isMulti() {
		return each(a.multi.members, func(m member) error { return m.held.release(ctx) })
	}
	if a == nil || a.hold == nil {
		return nil
	}
	return a.settle(ctx, a.hold.N)
}

// renew starts to renew the held units of a, until a ends.
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
		runtime.KeepAlive(a) // the slots are in use until here
	}
}

// watch calls f after the garbage collector has found that nobody refers to a any more.
func (l *Limiter) watch(a *admission, f func(dropped)) {
	runtime.AddCleanup(a, f, dropped{l.family, a.hold})
}

// A dropped is what remains of an admission to which nobody refers any more.
type dropped struct {
	of   *family
	hold *hold.Hold
}

// drop stops the renewals of a dropped admission, because nobody can end it any more.
func drop(d dropped) {
	if d.of.renewer.Drop(d.hold) {
		d.warn()
	}
}

// sample checks whether a dropped admission was ended. If it was, another admission may be watched.
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
		for i, m := range h.Set.Limits {
			if m.Slots {
				f.events.notify(Event{Kind: EventSlots, Result: Result{LimiterName: f.name, LimitName: h.Set.Names[i]}, Cost: n})
			}
		}
	}
	return hold.Events{
		Slots:    slots,
		Freed:    func(h *hold.Hold) { f.lines.Free(h.Key) },
		Lost:     func(h *hold.Hold) { f.events.notify(Event{Kind: EventSlotLost, Cost: h.N, Err: ErrSlotLost}) },
		Canceled: func(h *hold.Hold) { f.events.notify(Event{Kind: EventCancel, Cost: h.N}) },
	}
}

// settle ends each member by end: with its own cost, or with actual in place of n.
func (t *multiCall) settle(ctx context.Context, actual int64, end func(a *admission, ctx context.Context, actual int64) error) error {
	if err := checkActual(actual); err != nil {
		return err
	}
	return each(t.members, func(m member) error { return end(m.held, ctx, min(m.cost(actual), maxActual)) })
}

// each calls f for every member, even after an error.
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
