package core

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/batch"
	"github.com/redislimit/redislimit/internal/lease"
	"github.com/redislimit/redislimit/internal/server"
)

// decideLeased decides from a lease, or else by Redis, and then may take a lease.
func (l *Limiter) decideLeased(ctx context.Context, c call, to target) error {
	now := l.leases.Now()
	found := l.leases.Look(c.key, l.by)
	hot := found.Hot
	var seen *lease.Lease
	if hot != nil {
		if seen = hot.Lease(); l.spend(c, to, seen, now) {
			return nil
		}
	}
	if l.repeatDenial(c, to) {
		return nil
	}
	if hot == nil {
		if hot = l.leases.Count(found, now); hot == nil {
			return l.ask(ctx, c, to, l.denials.Stamp(c.key, now.Read), nil)
		}
	}
	x := l.leases.Begin(hot, seen, now)
	if x == nil {
		return l.decideWhileExchanged(ctx, c, to, hot, seen)
	}
	if ctx.Done() == nil {
		defer x.End()
		return l.ask(ctx, c, to, l.denials.Stamp(c.key, now.Read), x)
	}
	return l.exchangeBeside(ctx, c, to, x)
}

// exchangeBeside makes an exchange in a goroutine: its caller may leave, but the lease is for all.
func (l *Limiter) exchangeBeside(ctx context.Context, c call, to target, x *lease.Exchange) error {
	mine := target{Result: new(Result)}
	if to.reservation != nil {
		mine.reservation = &Reservation{limiter: l}
	}
	ask := func() error {
		defer x.End()
		return l.ask(context.WithoutCancel(ctx), c, mine, l.denials.Stamp(c.key, time.Time{}), x)
	}
	err := batch.Beside(ctx, ask, func(error) {
		if mine.reservation != nil {
			_ = mine.reservation.Cancel(context.Background())
		}
	})
	if err != nil {
		return err
	}
	*to.Result = *mine.Result
	if to.reservation != nil {
		to.reservation.hold = mine.reservation.hold
	}
	return nil
}

// decideWhileExchanged decides while another request takes a lease: from that, or else by Redis.
func (l *Limiter) decideWhileExchanged(ctx context.Context, c call, to target, hot *lease.HotKey, seen *lease.Lease) error {
	if latest := hot.Lease(); latest != seen && l.spend(c, to, latest, l.leases.Now()) { // it was taken meanwhile
		return nil
	}
	if granted := l.leases.Awaited(hot, c.n); granted != nil {
		over := time.NewTimer(l.timeout)
		defer over.Stop()
		select {
		case <-granted:
		case <-ctx.Done():
			return ctx.Err()
		case <-over.C:
			return l.withoutRedis(ctx, c, to, fmt.Errorf("no lease was granted within %v: %w", l.timeout, context.DeadlineExceeded))
		}
		if l.spend(c, to, hot.Lease(), l.leases.Now()) {
			return nil
		}
	}
	err := l.ask(ctx, c, to, l.denials.Stamp(c.key, time.Time{}), nil)
	if err == nil && to.Source == SourceRedis {
		l.leases.Heard(hot, to.admitted(c), to.remaining())
	}
	return err
}

// admitted returns how many units of c were admitted.
func (to target) admitted(c call) int64 {
	if !to.Allowed {
		return 0
	}
	return c.n
}

// spend decides on c from a lease. It reports false if that cannot be.
func (l *Limiter) spend(c call, to target, le *lease.Lease, now lease.Instant) bool {
	before, ok := le.Spend(c.n, c.op == algorithm.OpReserve, now)
	if !ok {
		return false
	}
	var inline [1]algorithm.Answer // it stays on the stack
	c.fill(to.Result, l.by, le.Answers(inline[:0], before), SourceLease)
	to.age(le.Age(now), SourceLease)
	if h := to.newHold(l, c, l.by); h != nil {
		h.FromLease(le, le.Handles, time.Now().Add(-now.Since(le.Sent())))
		to.ends(h, l.keeper)
	}
	return true
}

// leaseEvents are what the observers are told of leases.
func (f *family) leaseEvents() lease.Events {
	return lease.Events{
		Opened: func(units int64) { f.events.tell(Event{Kind: EventLease, Cost: units}) },
		Closed: func(units, spent int64) { f.events.tell(Event{Kind: EventLease, Cost: -units, Spent: spent}) },
	}
}

// settleLeases settles leases that were closed, within the Timeout. It returns those that it could not, or
// does not know of.
func (f *family) settleLeases(all []*lease.Closed) (failed []*lease.Closed) {
	byStore := make(map[*server.Store][]server.Background)
	settled := make([]bool, len(all))
	for i, c := range all {
		store := f.storeOf(c.Limits)
		call := algorithm.HoldCall{Op: algorithm.OpSettle, N: c.Held, M: c.Spent}
		byStore[store] = append(byStore[store], server.Background{
			Limits: c.Limits.Server, Key: c.Key, Begin: func() (algorithm.HoldCall, bool) {
				call.Handles = c.Over(f.leases.Now())
				return call, true
			},
			End: func(handles []algorithm.Handle, err error) { settled[i] = handles != nil && err == nil },
		})
	}
	ctx, cancel := context.WithTimeout(context.Background(), f.timeout)
	defer cancel()
	var stores sync.WaitGroup
	for store, calls := range byStore {
		stores.Go(func() { store.RunAll(ctx, calls) })
	}
	stores.Wait()
	for i, c := range all {
		if !settled[i] {
			failed = append(failed, c)
		}
	}
	return failed
}
