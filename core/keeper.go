package core

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/hold"
	"github.com/redislimit/redislimit/internal/hook"
	"github.com/redislimit/redislimit/internal/limits"
	"github.com/redislimit/redislimit/internal/memory"
	"github.com/redislimit/redislimit/internal/server"
)

// A keeper is where the state of keys is, for all that is no decision: in Redis, in memory, or
// nowhere, for a stub.
type keeper interface {
	hold.Keeper
	Reset(ctx context.Context, by *limits.Set, key string) error
	// Block bans key for so many microseconds, or with atLeast until its ban ends if that is later;
	// 0 ends its ban.
	Block(ctx context.Context, by *limits.Set, key string, lasts int64, atLeast bool) error
}

func holdCall(e hold.Ending) algorithm.HoldCall {
	return algorithm.HoldCall{Op: e.Op, N: e.N, M: e.Actual, Handles: e.Handles}
}

type redisKeeper struct{ store *server.Store }

func (k redisKeeper) End(ctx context.Context, e hold.Ending) error {
	if e.Op == algorithm.OpSettle {
		e.Handles = algorithm.MarkExpired(e.Set.Members, e.Handles, e.Passed.Microseconds(), 0)
	}
	return k.store.End(ctx, server.NewCall(e.Set.Server, e.Key, holdCall(e)), e.Freed)
}

func (k redisKeeper) Reset(ctx context.Context, by *limits.Set, key string) error {
	return k.store.Reset(ctx, by.Server, key)
}

func (k redisKeeper) Block(ctx context.Context, by *limits.Set, key string, lasts int64, atLeast bool) error {
	return k.store.Block(ctx, by.Server, key, lasts, atLeast)
}

func (k redisKeeper) Renew(all []*hold.Renewal) {
	calls := make([]server.Background, len(all))
	for i, r := range all {
		calls[i] = server.Background{Limits: r.Set.Server, Key: r.Key, End: r.End, Begin: func() (algorithm.HoldCall, bool) {
			handles := r.Begin()
			return algorithm.HoldCall{Op: algorithm.OpRenew, N: r.N, Handles: handles}, handles != nil
		}}
	}
	k.store.RunAll(context.Background(), calls)
}

type memoryKeeper struct{ store *memory.Store }

func (k memoryKeeper) End(_ context.Context, e hold.Ending) error {
	k.store.End(e.Set.Memory, e.Key, holdCall(e))
	if e.Freed != nil {
		e.Freed()
	}
	return nil
}

func (k memoryKeeper) Reset(_ context.Context, by *limits.Set, key string) error {
	k.store.Reset(by.Memory, key)
	return nil
}

func (k memoryKeeper) Block(_ context.Context, by *limits.Set, key string, lasts int64, atLeast bool) error {
	k.store.Block(by.Memory, key, lasts, atLeast)
	return nil
}

func (k memoryKeeper) Renew(all []*hold.Renewal) {
	for _, r := range all {
		if handles := r.Begin(); handles != nil {
			r.End(k.store.Renew(r.Set.Memory, r.Key, r.N, handles), nil)
		}
	}
}

type stubKeeper struct{ stub hook.Stub }

func (k stubKeeper) End(_ context.Context, e hold.Ending) error {
	actual := e.Actual
	if e.Op == algorithm.OpRelease {
		actual = e.N
	}
	err := k.call("Settle", e.Key, actual)
	if e.Freed != nil {
		e.Freed()
	}
	return err
}

func (k stubKeeper) Reset(_ context.Context, _ *limits.Set, key string) error {
	return k.call("Reset", key, 0)
}

func (k stubKeeper) Block(context.Context, *limits.Set, string, int64, bool) error { return nil } // its denials are the test's

func (k stubKeeper) Renew([]*hold.Renewal) {} // nothing expires

func (k stubKeeper) call(method, key string, cost int64) error {
	_, err := k.stub.Call(method, key, cost)
	return err
}

// stores are the Stores of a Limiter and of those that With derives from it.
type stores struct {
	open func(*server.Limits) *server.Store

	mu        sync.Mutex
	byScripts map[string]*server.Store
}

// of returns the Store for the algorithms of a set. Sets of the same algorithms share it, and so
// their scripts and round trips.
func (s *stores) of(by *limits.Set) *server.Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	store := s.byScripts[by.Scripts]
	if store == nil {
		store = s.open(by.Server)
		s.byScripts[by.Scripts] = store
	}
	return store
}

func (s *stores) close() {
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.byScripts))
	s.mu.Unlock()
	for _, store := range all {
		store.Close()
	}
}
