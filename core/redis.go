package core

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/decision"
	"github.com/redislimit/redislimit/internal/hold"
	"github.com/redislimit/redislimit/internal/limits"
	"github.com/redislimit/redislimit/internal/redisstore"
)

// A backend stores the state of keys, in Redis or in memory, and decides. The backend of a test's stub
// stores nothing.
type backend interface {
	// Decide fills r, which is empty, with the reply to c. After an error r is still empty.
	Decide(ctx context.Context, c *decision.Call, r *decision.Reply) error
	hold.Keeper
	// Reset forgets what was charged to key.
	Reset(ctx context.Context, set *limits.Set, key string) error
	// Block bans key for lasts microseconds, or ends its ban if lasts is 0. If atLeast is set, a ban that
	// would end later than the new one stays as it is.
	Block(ctx context.Context, set *limits.Set, key string, lasts int64, atLeast bool) error
}

// inRedis is the backend in Redis. now is the clock of this process, for holds.
type inRedis struct{ now func() time.Time }

// Decide makes Redis decide.
func (s *inRedis) Decide(ctx context.Context, c *decision.Call, r *decision.Reply) error {
	h := c.NewHold(c.Set, s.now)
	call := redisstore.NewCall(c.Set.Redis, c.Key, c.Request(c.Set, h))
	if err := c.Set.Store.Decide(ctx, call); err != nil {
		return err
	}
	if takeReply(r, c.Set, call); h != nil && r.Allowed {
		h.Keeper, r.Hold = s, h
	}
	return nil
}

// takeReply fills r with the reply of Redis to call.
func takeReply(r *decision.Reply, set *limits.Set, call *redisstore.Call) {
	r.Set, r.N, r.Answers, r.Ban, r.Source = set, call.N, call.Answers, call.Ban(), decision.Redis
	r.Conclude()
}

// End carries out e.
func (s *inRedis) End(ctx context.Context, e hold.Ending) error {
	if e.Op == algorithm.OpSettle {
		e.Handles = algorithm.MarkExpired(e.Set.Limits, e.Handles, e.Passed.Microseconds(), e.Lasts.Microseconds())
	}
	return e.Set.Store.End(ctx, redisstore.NewCall(e.Set.Redis, e.Key, endingOperation(e)), e.Freed)
}

// Renew carries out renewals. The renewals of each Store are sent together, so that they can share round trips.
func (s *inRedis) Renew(all []*hold.Renewal) {
	byStore := make(map[*redisstore.Store][]redisstore.Background, 1)
	for _, r := range all {
		byStore[r.Set.Store] = append(byStore[r.Set.Store], redisstore.Background{
			Limits: r.Set.Redis, Key: r.Key, End: r.End, Begin: func() (algorithm.Operation, bool) {
				handles := r.Begin()
				return algorithm.Operation{Op: algorithm.OpRenew, N: r.N, Handles: handles}, handles != nil
			},
		})
	}
	for store, calls := range byStore {
		store.SendAll(context.Background(), calls)
	}
}

// Reset forgets what was charged to key.
func (s *inRedis) Reset(ctx context.Context, set *limits.Set, key string) error {
	return set.Store.Reset(ctx, set.Redis, key)
}

// Block bans key, or ends its ban; see backend.
func (s *inRedis) Block(ctx context.Context, set *limits.Set, key string, lasts int64, atLeast bool) error {
	return set.Store.Block(ctx, set.Redis, key, lasts, atLeast)
}

func endingOperation(e hold.Ending) algorithm.Operation {
	return algorithm.Operation{Op: e.Op, N: e.N, Actual: e.Actual, Handles: e.Handles}
}

// stores contains the Stores of a Limiter and of the Limiters derived from it by With.
type stores struct {
	open func(*redisstore.Limits) *redisstore.Store

	mu        sync.Mutex
	byScripts map[string]*redisstore.Store
	closed    bool
}

// of returns the Store for a Set. Sets of the same algorithms share a Store, and therefore scripts and
// round trips. After close, a new Store is closed at once: it decides, but does not watch Redis.
func (s *stores) of(set *limits.Set) *redisstore.Store {
	s.mu.Lock()
	store := s.byScripts[set.Scripts]
	isNew, closed := store == nil, s.closed
	if isNew {
		store = s.open(set.Redis)
		s.byScripts[set.Scripts] = store
	}
	s.mu.Unlock()
	if isNew && closed {
		store.Close()
	}
	return store
}

// close closes all Stores at the same time, because each of them may wait for a Timeout; see
// redisstore.Store.Close.
func (s *stores) close() {
	s.mu.Lock()
	s.closed = true
	all := slices.Collect(maps.Values(s.byScripts))
	s.mu.Unlock()
	var closing sync.WaitGroup
	for _, store := range all {
		closing.Go(store.Close)
	}
	closing.Wait()
}
