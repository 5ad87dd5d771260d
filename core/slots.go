package core

import (
	"context"
	"fmt"
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
	held, owner := r.receipt.held, r.receipt.claim.Owner()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case owner != 0 && owner != l.id:
		return fmt.Errorf("%w: it is of limiter %q, not of this %q", ErrInvalidResult, r.Limiter, l.name)
	case held == nil:
		return nil
	}
	refs, slots := held.takeSlots()
	if !slots {
		return nil
	}
	l.emitSlots(ctx, held, -1)
	if !held.reserved {
		l.renewer.forget(held)
	}
	return l.release(ctx, r, refs)
}

// release frees the slots that are found by refs.
func (l *Limiter) release(ctx context.Context, r Result, refs []algorithm.Ref) error {
	key, n := r.receipt.key, r.receipt.n
	if l.memory != nil {
		l.memory.Release(key, n, refs)
		return nil
	}
	if r.Source == SourceFallback && l.fallback != nil {
		l.fallback.store.Release(key, n, refs)
		return nil
	}
	return l.failure(ctx, l.store.Release(ctx, key, n, refs))
}

// takeSlots returns by what the slots are found, and whether there are any. From then
// on there are none.
func (r *reservation) takeSlots() (refs []algorithm.Ref, slots bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.source != SourceRedis {
		r.wait()
	}
	refs = r.find(false)
	slots, r.slots, r.onLost = r.slots, false, nil
	return refs, slots
}

// end ends what is held for a Result that is settled or refunded; see [reservation.end].
func (l *Limiter) end(ctx context.Context, held *reservation) (refs []algorithm.Ref, slots, known bool) {
	refs, slots, known = held.end()
	l.renewer.forget(held)
	if slots {
		l.emitSlots(ctx, held, -1)
	}
	return refs, slots, known
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
	return ctx, func() { cancel(nil) }
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
	if held == nil {
		return
	}
	held.key, held.n, held.source = res.receipt.key, res.receipt.n, res.Source
	if !held.slots {
		return
	}
	res.receipt.alive = &liveness{held}
	runtime.AddCleanup(res.receipt.alive, l.dropped, held)
	l.emitSlots(ctx, held, 1)
	l.renewer.add(l, held)
}

// dropped ends the renewals of slots that nothing can release any more.
func (l *Limiter) dropped(held *reservation) {
	if _, slots := held.takeSlots(); !slots {
		return
	}
	ctx := context.Background()
	l.emitSlots(ctx, held, -1)
	l.dropLogged.Do(func() {
		l.events.log().WarnContext(ctx, "redislimit: a Result with slots in flight was dropped without Release: they are free when they expire; this is logged once",
			"limiter", l.name)
	})
}

// loseSlots notes that slots were lost: others may have them.
func (l *Limiter) loseSlots(r *reservation) {
	r.mu.Lock()
	had, onLost := r.slots, r.onLost
	r.slots, r.onLost = false, nil
	r.lost = r.lost || had
	r.mu.Unlock()
	if !had {
		return
	}
	ctx := context.Background()
	l.emitSlots(ctx, r, -1)
	l.events.emit(ctx, Event{Kind: EventSlotLost, Cost: r.n, Err: ErrSlotLost})
	for _, f := range onLost {
		f()
	}
}

// emitSlots emits that this process holds the slots of r, or with a sign of -1 that it
// does no more.
func (l *Limiter) emitSlots(ctx context.Context, r *reservation, sign int64) {
	if l.events.observe == nil {
		return
	}
	for i, m := range r.limits.members {
		if m.Slots {
			l.events.emit(ctx, Event{Kind: EventSlots, Cost: sign * r.n, Detail: r.limits.names[i]})
		}
	}
}
