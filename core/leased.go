package core

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/decision"
	"github.com/redislimit/redislimit/internal/lease"
	"github.com/redislimit/redislimit/internal/limits"
	"github.com/redislimit/redislimit/internal/redisstore"
)

// leasing decides by spending units that this process has leased from Redis. A Limiter without the
// option Lease has a nil *leasing.
type leasing struct {
	redis   *inRedis
	all     *lease.Leases
	timeout time.Duration
}

// spend decides c by spending units of the lease that the key has. It returns false if that is not
// possible: if c only reads, if the key has no lease, or if the lease is closed, too old or has too few
// units. s may be nil, and spend then returns false.
func (s *leasing) spend(c *decision.Call, r *decision.Reply) bool {
	if s == nil || !c.Writes() {
		return false
	}
	hot := s.all.Find(c.Key, c.Set).Hot
	return hot != nil && s.spendFrom(hot.Lease(), c, r, s.all.Now())
}

// decide decides c after spend has returned false. If the key is hot, that is, if it is decided on
// often, decide makes this process take a new lease, and spends units of the new lease. If this is not
// possible, or if c only reads, Redis decides. Redis does not decide if the wait for the new lease fails:
// decide then returns the error of await.
func (s *leasing) decide(ctx context.Context, c *decision.Call, r *decision.Reply) error {
	if !c.Writes() {
		return s.redis.Decide(ctx, c, r)
	}
	now := s.all.Now()
	found := s.all.Find(c.Key, c.Set)
	hot, seen := found.Hot, found.Hot.Lease()
	if s.spendFrom(seen, c, r, now) {
		return nil
	}
	if hot == nil {
		if hot = s.all.Count(found, now); hot == nil {
			return s.redis.Decide(ctx, c, r)
		}
	}
	s.all.Exchange(ctx, hot, c.N, seen, now)
	if err := s.await(ctx, hot, c.N); err != nil {
		return err
	}
	if latest := hot.Lease(); latest != seen && s.spendFrom(latest, c, r, s.all.Now()) {
		return nil
	}
	if err := s.redis.Decide(ctx, c, r); err != nil {
		return err
	}
	admitted := int64(0)
	if r.Allowed {
		admitted = c.N
	}
	s.all.Heard(hot, admitted, r.Remaining(r.Allowed))
	return nil
}

// await waits until the exchange of leases that is in flight for hot has ended; see lease.Leases.Exchange. It
// returns nil at once if no exchange is in flight, if the next lease has too few units for this request and the
// requests that wait already, or if a test has set the clocks of leases; see lease.Leases.Awaited. It returns an
// error if ctx ends or one Timeout passes before the exchange has ended.
func (s *leasing) await(ctx context.Context, hot *lease.HotKey, n int64) error {
	ended := s.all.Awaited(hot, n)
	if ended == nil {
		return nil
	}
	over := time.NewTimer(s.timeout)
	defer over.Stop()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-over.C:
		return fmt.Errorf("no lease was granted within %v: %w", s.timeout, context.DeadlineExceeded)
	}
}

// spendFrom decides c by spending units of le. It returns false if le is nil, closed or too old, or if it
// has too few units.
func (s *leasing) spendFrom(le *lease.Lease, c *decision.Call, r *decision.Reply, now lease.Instant) bool {
	taken, ok := le.Spend(c.N, c.Op == algorithm.OpReserve, now)
	if !ok {
		return false
	}
	r.Set, r.N, r.Source, r.Age = c.Set, c.N, decision.Lease, le.Age(now)
	le.Answers(r.Room()[:0], taken)
	r.Conclude()
	if h := c.NewHold(c.Set, s.redis.now); h != nil {
		read := time.Now()
		h.FromLease(le, le.Handles, read.Add(-now.Since(le.Sent())), read.Add(-le.Age(now)))
		h.Keeper, r.Hold = s.redis, h
	}
	return true
}

// take asks Redis to hold units of a key for a lease of the given duration. If Redis does not hold
// the units, the Grant has no handles. If Redis does not answer or the key is banned, the Grant is zero.
func (s *leasing) take(ctx context.Context, set *limits.Set, key string, units int64, lasts time.Duration) (g lease.Grant) {
	handles := make([]algorithm.Handle, len(set.Limits))
	for i := range handles {
		handles[i].A = lasts.Microseconds()
	}
	call := redisstore.NewCall(set.Redis, key, algorithm.Operation{Op: algorithm.OpReserve, N: units, Handles: handles})
	if err := set.Store.Decide(ctx, call); err != nil || call.Ban().Until > 0 {
		return g
	}
	if call.Admitted() {
		g.Answers, g.Handles = call.Answers, handles
	}
	r := decision.Reply{Set: set, Answers: call.Answers}
	r.Conclude()
	g.Remaining = r.Remaining(false)
	return g
}

// settle asks Redis to settle closed leases, and waits at most one Timeout. It returns the leases that may
// not have been settled.
func (s *leasing) settle(all []*lease.Closed) (failed []*lease.Closed) {
	byStore := make(map[*redisstore.Store][]redisstore.Background)
	settled := make([]bool, len(all))
	for i, c := range all {
		call := algorithm.Operation{Op: algorithm.OpSettle, N: c.Held, Actual: c.Spent}
		byStore[c.Limits.Store] = append(byStore[c.Limits.Store], redisstore.Background{
			Limits: c.Limits.Redis, Key: c.Key, Begin: func() (algorithm.Operation, bool) {
				call.Handles = c.SettleHandles(s.all.Now())
				return call, true
			},
			End: func(handles []algorithm.Handle, err error) { settled[i] = handles != nil && err == nil },
		})
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	var stores sync.WaitGroup
	for store, calls := range byStore {
		stores.Go(func() { store.SendAll(ctx, calls) })
	}
	stores.Wait()
	for i, c := range all {
		if !settled[i] {
			failed = append(failed, c)
		}
	}
	return failed
}

// leaseConfig returns the configuration of the limiter's leases.
func (f *family) leaseConfig() lease.Config {
	c := lease.Config{Duration: f.leaseDuration, HotDecisions: f.simulated.HotDecisions, Share: f.simulated.LeaseShare}
	if clocks := f.simulated.Leases; clocks != nil {
		c.OnlyCallers = true
		c.Clock = func() lease.Instant {
			wall, mono := clocks()
			return lease.Instant{Wall: wall, Mono: mono}
		}
	}
	return c
}

// newLeasing returns the leasing of a limiter.
func newLeasing(f *family, redis *inRedis) *leasing {
	s := &leasing{redis: redis, timeout: f.timeout}
	take := func(ctx context.Context, set *limits.Set, key string, units int64) lease.Grant {
		return s.take(ctx, set, key, units, f.leaseDuration)
	}
	s.all = lease.New(f.leaseConfig(), take, s.settle, lease.Events{
		Opened: func(units int64) { f.events.notify(Event{Kind: EventLease, Cost: units}) },
		Closed: func(units, spent int64) { f.events.notify(Event{Kind: EventLease, Cost: -units, Spent: spent}) },
	})
	return s
}
