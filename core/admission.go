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

// An admission is the Result of a decision, with what is needed to end whatever the decision has admitted.
// After a denial there is nothing to end. [Permit] and [Reservation] are admissions with the methods that
// make sense for them. All three types have the same fields, so converting a pointer to one of them into a
// pointer to another costs nothing.
type admission struct {
	Result
	ending
}

// An ending contains what is needed to end an admission.
type ending struct {
	limiter *Limiter
	hold    *hold.Hold // nil if there is nothing to end
	multi   *multiCall // the admissions of all keys of AcquireAll and the like, which are ended in place of hold; otherwise nil
}

// A multiCall is a decision on several keys, with what the keys have admitted so far.
type multiCall struct {
	n        int64 // the cost of the call; see Keyed.cost for the cost of each key
	members  []member
	redisErr error        // why Redis failed to decide on all keys at once, or nil
	admitted []keyedEvent // events that are emitted only after all keys have admitted; see Limiter.decide
	denied   Event        // the last denial of member.reserve, which emits it
}

// A keyedEvent is an event, with its key, that has not been passed to the observers yet.
type keyedEvent struct {
	events *emitter
	key    string
	event  Event
}

// A member is one of the keys of a multiCall.
type member struct {
	Keyed

	position int // the index of the key among the arguments of the call; if the key was given several times, the first such index

	held  *admission    // what the key has admitted; nil before that
	stamp denials.Stamp // taken before a joint decision is sent
}

// settle ends a, whose work cost actual units: they are charged in place of the units that are held. Units
// that Acquire has charged stay charged, unless actual is 0: then they are given back.
func (a *admission) settle(ctx context.Context, actual int64) error {
	if a.isMulti() {
		return a.multi.settle(ctx, actual, (*admission).settle)
	}
	return a.settleOne(ctx, actual, nil)
}

func (a *admission) isMulti() bool { return a != nil && a.multi != nil }

// settleOne settles the admission of a single key. If later is not nil, settleOne passes the settlement to
// later, which may send it in the background.
func (a *admission) settleOne(ctx context.Context, actual int64, later hold.Background) error {
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

// checkActual returns an error if Settle does not accept the cost actual.
func checkActual(actual int64) error {
	if actual < 0 || actual > maxActual {
		return fmt.Errorf("%w: it is %d, allowed is 0 to %d", ErrInvalidCost, actual, maxActual)
	}
	return nil
}

// roomFor is how many more requests of the same cost must fit into the limit if a settlement is to be sent
// in the background. A client may send several requests, such as logins, before the settlement arrives in
// Redis. None of them should be denied because Redis still counts units that the settlement gives back.
const roomFor = 16

// settleLater is like settle, but need not wait for the reply of Redis. AllowAll and the middleware call it,
// so that they can answer sooner. The settlement is sent in the background if there is room for roomFor
// more requests, each with the admitted cost or with actual, whichever is larger: a settlement that arrives
// late then changes no decision. If there is less room, or if too many settlements are in the background
// already, settleLater waits as settle does. It also waits if a has slots, because other callers wait for
// these slots. If the settlement is lost, the held units are charged when the hold expires.
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
	return a.settleOne(ctx, actual, func(send func() error) bool {
		return a.hold.Set.Store.Later(send, a.settled)
	})
}

// cancelLater is like cancel, but works in the background under the same conditions as settleLater.
func (a *admission) cancelLater(ctx context.Context) error {
	if a.isMulti() {
		return each(a.multi.members, func(m member) error { return m.held.settleLater(ctx, 0) })
	}
	return a.settleLater(ctx, 0)
}

// settled is called when a settlement that was sent in the background has ended. Its error has already been
// reported to the observers and the log, unless it says that this process is overloaded: failure counts that.
func (a *admission) settled(err error) {
	ctx, l := context.Background(), a.limiter
	l.gaveBack(a.hold)
	_ = l.family.failure(ctx, err) // nobody waits for the error itself
}

// gaveBack forgets the remembered denials of h's key, and wakes a caller that waits for units of this key,
// because h may have given units back. If h has slots, it wakes nobody: the Renewer's event Freed wakes a
// caller when the slots are free.
func (l *Limiter) gaveBack(h *hold.Hold) {
	l.family.denials.Forget(h.Key, h.Set)
	if !h.HasSlots() {
		l.family.lines.Free(h.Key)
	}
}

// cancel ends a because the work was not done. It gives back what every key has held or charged, as far as
// that is possible.
func (a *admission) cancel(ctx context.Context) error {
	if a.isMulti() {
		return each(a.multi.members, func(m member) error { return m.held.cancel(ctx) })
	}
	return a.settle(ctx, 0)
}

// release ends a because the work was done. The units that were admitted are charged, or stay charged.
func (a *admission) release(ctx context.Context) error {
	if a.isMulti() {
		return each(a.multi.members, func(m member) error { return m.held.release(ctx) })
	}
	if a == nil || a.hold == nil {
		return nil
	}
	return a.settle(ctx, a.hold.N)
}

// renew makes the Renewer renew the held units of a until a ends.
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

// context returns a copy of ctx that is canceled when a loses its slots. If a has no slots, context returns
// ctx itself.
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

// watch arranges a call of f after the garbage collector has found that nothing refers to a any more.
func (l *Limiter) watch(a *admission, f func(dropped)) {
	runtime.AddCleanup(a, f, dropped{l.family, a.hold})
}

// A dropped is what remains of an admission to which nothing refers any more.
type dropped struct {
	of   *family
	hold *hold.Hold
}

// drop stops the renewals of a dropped admission, because nobody can end it any more. It warns if there was
// something to renew.
func drop(d dropped) {
	if d.of.renewer.Drop(d.hold) {
		d.warn()
	}
}

// sample checks whether a dropped admission was ended. If it was, the next admission may be watched.
// Otherwise sample warns, and no further admission is sampled, because the warning is logged only once.
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

// holdEvents returns the functions that the Renewer calls when something happens to a hold. Freed wakes a
// caller that waits for the slots; the others notify the observers.
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

// settle calls end for each member, with the cost that Keyed.cost returns for actual: a key that was given a
// cost of its own is charged that cost, and every other key is charged actual, once for each time that the key
// was given.
func (t *multiCall) settle(ctx context.Context, actual int64, end func(a *admission, ctx context.Context, actual int64) error) error {
	if err := checkActual(actual); err != nil {
		return err
	}
	return each(t.members, func(m member) error { return end(m.held, ctx, min(m.cost(actual), maxActual)) })
}

// each calls f for every member, even after an error, and returns the errors of all calls.
func each(members []member, f func(member) error) error {
	var failed error
	for _, m := range members {
		failed = errors.Join(failed, f(m))
	}
	return failed
}

// contextOf is like admission.context, for all members: the copy of ctx is canceled when one of them loses
// its slots.
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
