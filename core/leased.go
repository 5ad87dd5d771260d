package core

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/lease"
	"github.com/redislimit/redislimit/internal/limits"
	"github.com/redislimit/redislimit/internal/server"
)

// decideLeased decides from a lease, or else by Redis. The first request for a hot key that finds
// no usable lease has another taken.
func (l *Limiter) decideLeased(ctx context.Context, c call, to target) error {
	now := l.family.leases.Now()
	found := l.family.leases.Look(c.key, l.by)
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
		if hot = l.family.leases.Count(found, now); hot == nil {
			return l.ask(ctx, c, to, l.family.denials.Stamp(c.key, now.Read))
		}
	}
	l.family.leases.Exchange(ctx, hot, c.n, seen, now)
	if granted := l.family.leases.Awaited(hot, c.n); granted != nil {
		over := time.NewTimer(l.family.timeout)
		defer over.Stop()
		select {
		case <-granted:
		case <-ctx.Done():
			return ctx.Err()
		case <-over.C:
			return l.withoutRedis(ctx, c, to, fmt.Errorf("no lease was granted within %v: %w", l.family.timeout, context.DeadlineExceeded))
		}
	}
	if latest := hot.Lease(); latest != seen && l.spend(c, to, latest, l.family.leases.Now()) {
		return nil
	}
	err := l.ask(ctx, c, to, l.family.denials.Stamp(c.key, time.Time{}))
	if err == nil && to.Source == SourceRedis {
		l.family.leases.Heard(hot, to.admitted(c), to.remaining())
	}
	return err
}

// takeLease has Redis hold units of a key for the duration of a lease.
func (f *family) takeLease(ctx context.Context, by *limits.Set, key string, units int64) (g lease.Grant) {
	handles := make([]algorithm.Handle, len(by.Members))
	for i := range handles {
		handles[i].A = f.lease.Microseconds()
	}
	d := server.NewCall(by.Server, key, algorithm.HoldCall{Op: algorithm.OpReserve, N: units, Handles: handles})
	if err := f.stores.of(by).Decide(ctx, d); err != nil || d.Ban().Until > 0 {
		return g
	}
	if d.Admitted() {
		g.Answers, g.Handles = d.Answers, handles
	}
	var res Result
	call{op: algorithm.OpEvaluate}.fill(&res, by, d.Answers, SourceRedis)
	g.Remaining = res.remaining()
	return g
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
		to.attach(h, l.keeper)
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

// settleLeases settles leases that were closed, within the Timeout. It returns those that it could
// not, or does not know of.
func (f *family) settleLeases(all []*lease.Closed) (failed []*lease.Closed) {
	byStore := make(map[*server.Store][]server.Background)
	settled := make([]bool, len(all))
	for i, c := range all {
		store := f.stores.of(c.Limits)
		call := algorithm.HoldCall{Op: algorithm.OpSettle, N: c.Held, M: c.Spent}
		byStore[store] = append(byStore[store], server.Background{
			Limits: c.Limits.Server, Key: c.Key, Begin: func() (algorithm.HoldCall, bool) {
				call.Handles = c.SettleHandles(f.leases.Now())
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
