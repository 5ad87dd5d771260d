package core

import (
	"context"
	"runtime"

	"github.com/redislimit/redislimit/internal/algorithm"
)

// Release frees the slots of [InFlight] that r holds, when its work has ended. What
// other limits charged or hold for r stays. Each Result is released once, its copies
// included, also by [Limiter.Settle] and [Limiter.Refund]: another call does nothing. Nor
// does one for a Result without slots, such as a denial, or one whose slots are lost.
//
// A Result whose slots are not released keeps them for as long as the process has it.
//
// Errors are [ErrInvalidResult] if r is of another Limiter, the context's own error, so
// that ctx is best one that does not end with the work ([context.WithoutCancel]), and
// [ErrUnavailable] if Redis could not answer. It is sent once: after ErrUnavailable, or a
// context that ended while Redis was asked, the slots are free when they expire.
func (l *Limiter) Release(ctx context.Context, r Result) error {
	held := r.receipt.held
	if owned, err := l.owns(ctx, r); !owned || held == nil {
		return err
	}
	refs, err := l.takeSlots(ctx, held, r.receipt.n)
	if refs == nil || err != nil {
		return err
	}
	return l.release(ctx, r, refs)
}

// release frees the slots that are found by refs.
func (l *Limiter) release(ctx context.Context, r Result, refs []algorithm.Ref) error {
	limits, key, n := r.receipt.limits, r.receipt.key, r.receipt.n
	if l.stub != nil {
		return l.callStub(ctx, "Release", key, n)
	}
	if local := l.localStore(r.Source); local != nil {
		local.Release(limits.memory, key, n, refs)
		return nil
	}
	return l.failure(ctx, l.storeOf(limits).Release(ctx, limits.server, key, n, refs))
}

// takeSlots takes the n slots of r, which are then no longer renewed. It returns by what
// they are found, or nil if there are none.
func (f *family) takeSlots(ctx context.Context, r *reservation, n int64) ([]algorithm.Ref, error) {
	r.mu.Lock()
	err := r.wait(ctx, false)
	refs, slots, keep := r.find(false), r.slots, r.keep
	r.slots, r.onLost = false, nil
	r.mu.Unlock()
	if !slots {
		return nil, nil
	}
	if !keep {
		f.renewer.forget(r)
	}
	f.emitSlots(ctx, r, -n)
	return refs, err
}

// end ends what n units are held for, which are settled or refunded. It returns by what
// each limit finds them, and whether that is known of those that are no slots.
func (f *family) end(ctx context.Context, r *reservation, n int64) (refs []algorithm.Ref, known bool, err error) {
	refs, slots, known, err := r.end(ctx)
	f.renewer.forget(r)
	if slots {
		f.emitSlots(ctx, r, -n)
	}
	return refs, known, err
}

// SlotContext returns a copy of ctx that is canceled when r loses its slots of
// [InFlight] before they are released, with [ErrSlotLost] as its [context.Cause]: others
// may do the work then. The middleware gives handlers such a context. The returned
// function, which must be called, frees what the context needs. If r has no slots, it is
// ctx itself that is returned.
//
//	ctx, cancel := lim.SlotContext(ctx, res)
//	defer cancel()
func (l *Limiter) SlotContext(ctx context.Context, r Result) (context.Context, context.CancelFunc) {
	if !r.HasSlots() {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	held := r.receipt.held
	held.mu.Lock()
	defer held.mu.Unlock()
	if held.slots {
		held.onLost = append(held.onLost, func() { cancel(ErrSlotLost) })
	} else if held.lost {
		cancel(ErrSlotLost)
	}
	return ctx, func() {
		cancel(nil)
		runtime.KeepAlive(r.receipt.alive) // until then the slots are in use
	}
}

// HasSlots reports whether slots of [InFlight] were taken for r: it is then to be
// released, once, by [Limiter.Release].
func (r Result) HasSlots() bool {
	return r.receipt.n > 0 && r.receipt.held != nil && r.receipt.held.limits.slots
}

// A liveness is reachable while a copy of a Result with slots is.
type liveness struct{ of *reservation }

// keepSlots has the slots of res, if there are any, renewed until they are given back,
// or until all copies of res have been dropped.
func (l *Limiter) keepSlots(ctx context.Context, res *Result) {
	held := res.receipt.held
	if held == nil || !held.slots {
		return
	}
	k := kept{held, res.receipt.key, res.receipt.n}
	res.receipt.alive = &liveness{held}
	runtime.AddCleanup(res.receipt.alive, l.dropped, k)
	l.emitSlots(ctx, held, k.n)
	l.renewer.add(l.family, k)
}

// dropped ends the renewals of slots that nothing can release any more.
func (f *family) dropped(k kept) {
	ctx := context.Background()
	if refs, _ := f.takeSlots(ctx, k.reservation, k.n); refs == nil {
		return
	}
	f.dropLogged.Do(func() {
		f.events.log().WarnContext(ctx, "redislimit: a Result with slots was dropped without Release: they are free when they expire; this is logged once",
			"limiter", f.name)
	})
}

// loseSlots notes that slots were lost: others may have them.
func (f *family) loseSlots(k kept) {
	k.mu.Lock()
	had, onLost := k.slots, k.onLost
	k.slots, k.onLost = false, nil
	k.lost = k.lost || had
	k.mu.Unlock()
	if !had {
		return
	}
	ctx := context.Background()
	f.emitSlots(ctx, k.reservation, -k.n)
	f.events.emit(ctx, Event{Kind: EventSlotLost, Cost: k.n, Err: ErrSlotLost})
	for _, lost := range onLost {
		lost()
	}
}

// emitSlots emits that this process holds n slots of r, or if n is negative that it does
// no more.
func (f *family) emitSlots(ctx context.Context, r *reservation, n int64) {
	if f.events.observe == nil {
		return
	}
	for i, m := range r.limits.members {
		if m.Slots {
			f.events.emit(ctx, Event{Kind: EventSlots, Result: Result{Limiter: f.name, Name: r.limits.names[i]}, Cost: n})
		}
	}
}
