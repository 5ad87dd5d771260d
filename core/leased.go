package core

import (
	"context"
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
			return l.ask(ctx, c, to, l.denials.Before(now.Read), nil)
		}
	}
	x := l.leases.Begin(hot, seen, now)
	if x == nil {
		return l.decideWhileExchanged(ctx, c, to, hot, seen)
	}
	if ctx.Done() == nil {
		defer x.End()
		return l.ask(ctx, c, to, l.denials.Before(now.Read), x)
	}
	return l.exchangeBeside(ctx, c, to, x)
}

// exchangeBeside lets the caller leave an exchange, whose lease is for all.
func (l *Limiter) exchangeBeside(ctx context.Context, c call, to target, x *lease.Exchange) error {
	own := target{Result: new(Result)}
	if to.reservation != nil {
		own.reservation = &Reservation{limiter: l}
	}
	ask := func() error {
		defer x.End()
		return l.ask(context.WithoutCancel(ctx), c, own, l.denials.Before(time.Time{}), x)
	}
	err := batch.Beside(ctx, ask, func(error) {
		if own.reservation != nil {
			_ = own.reservation.Cancel(context.Background())
		}
	})
	if err != nil {
		return err
	}
	*to.Result = *own.Result
	if to.reservation != nil {
		to.reservation.hold = own.reservation.hold
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
			return l.withoutRedis(ctx, c, to, server.ErrQueue)
		}
		if l.spend(c, to, hot.Lease(), l.leases.Now()) {
			return nil
		}
	}
	err := l.ask(ctx, c, to, l.denials.Before(time.Time{}), nil)
	if err == nil && to.Source == SourceRedis {
		l.heard(c, to, hot)
	}
	return err
}

// heard notes what a decision by Redis says of a hot key.
func (l *Limiter) heard(c call, to target, hot *lease.HotKey) {
	n := c.n
	if !to.Allowed {
		n = 0
	}
	l.leases.Heard(hot, n, to.remaining())
}

// exchanged notes what the reply to an exchange says.
func (l *Limiter) exchanged(c call, to target, answers []algorithm.Answer, x *lease.Exchange) {
	l.heard(c, to, x.Hot)
	n := c.n
	if !to.Allowed {
		n = 0
	}
	x.Granted(answers, n)
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
	if held := to.hold(l, c, l.by); held != nil {
		held.FromLease(le, le.Handles, time.Now().Add(-now.Since(le.Sent())))
		to.held(held, l.keeper)
	}
	return true
}

// leaseEvents are what the observers are told of leases.
func (f *family) leaseEvents() lease.Events {
	return lease.Events{
		Opened: func(units int64) { f.events.emit(context.Background(), Event{Kind: EventLease, Cost: units}) },
		Closed: func(units, spent int64) {
			f.events.emit(context.Background(), Event{Kind: EventLease, Cost: -units, Spent: spent})
		},
	}
}

// settleLeases settles leases that were closed, within the Timeout.
func (f *family) settleLeases(all []*lease.Closed) {
	byStore := make(map[*server.Store][]server.Background)
	for _, c := range all {
		store := f.storeOf(c.Limits)
		call := algorithm.HoldCall{Op: algorithm.OpSettle, N: c.Held, M: c.Spent, Handles: c.Handles}
		byStore[store] = append(byStore[store], server.Background{
			Limits: c.Limits.Server, Key: c.Key, Begin: func() (algorithm.HoldCall, bool) { return call, true },
		})
	}
	ctx, cancel := context.WithTimeout(context.Background(), f.timeout)
	defer cancel()
	var stores sync.WaitGroup
	for store, calls := range byStore {
		stores.Go(func() { store.RunAll(ctx, calls) })
	}
	stores.Wait()
}
