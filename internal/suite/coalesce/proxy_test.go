package coalesce

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/gate"
	"github.com/redislimit/redislimit/internal/testkit/permits"
	"github.com/redislimit/redislimit/internal/testkit/redisclient"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

// twemproxyClient returns a client that works with twemproxy 0.5. Twemproxy closes a connection on which it gets a command
// that it does not know: HELLO, CLIENT (which go-redis sends for its identity, and for Protocol 3), SELECT (for a DB),
// SCRIPT, CLUSTER and INFO. EVAL and EVALSHA need at least one key.
func twemproxyClient(t *testing.T, addr string) *redis.Client {
	t.Helper()
	client := redisclient.New(t, &redis.Options{Addr: addr, Protocol: 2, DisableIdentity: true})
	client.AddHook(gate.Around(func(cmds []redis.Cmder, send func() error) error {
		if cmds[0].Name() == "hello" { // go-redis begins each connection with HELLO, even with Protocol 2
			return nil
		}
		return send()
	}))
	return client
}

// TestShardingProxy checks that behind a proxy that shards silently no key is counted on two servers, even when decisions
// could share scripts. The test would notice a batch that is sent as one script to the server of its first key. It needs
// twemproxy: without it, TestSharding (internal/redisstore) checks with a fake that the library notices such a proxy.
func TestShardingProxy(t *testing.T) {
	t.Parallel()
	for name, options := range map[string][]core.Option{"default": nil, "MaxBatch(1)": {core.MaxBatch(1)}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers := []*redistest.Instance{redistest.Server(t), redistest.Server(t)}
			s := newBackend(twemproxyClient(t, redistest.Twemproxy(t, servers...)), 1)
			const keys, limit = 100, 5
			lim := core.MustNew(s.client, "sharded", slices.Concat(exactly, options, []core.Option{core.FixedWindow(core.PerHour(limit))})...)
			s.gate.Hold(t)
			s.gate.Open()
			for key, admitted := range hammer(t, lim, keys) {
				if admitted != limit {
					t.Errorf("key %s: %d calls were admitted, want %d", key, admitted, limit)
				}
			}
			stored := 0
			for i, server := range servers {
				n, err := server.Client(t).DBSize(t.Context()).Result()
				if stored += int(n); err != nil || n == 0 {
					t.Errorf("server %d has %d keys, %v; want some", i, n, err)
				}
			}
			if stored != keys {
				t.Errorf("the servers have %d keys, want %d: each key on one server, and no key of a probe", stored, keys)
			}
			sent, _ := s.gate.Sent()
			if most := slices.Max(sent); most != 1 {
				t.Errorf("a script with the keys of %d decisions was sent, want only scripts of one decision", most)
			}
		})
	}
}

// hammer makes 10 decisions on each key, by 64 callers at the same time, and returns how many calls were admitted by key.
// Some callers reserve first and then settle.
func hammer(t *testing.T, lim *core.Limiter, keys int) map[string]int {
	t.Helper()
	todo := make(chan int)
	admitted := map[string]int{}
	var mu sync.Mutex
	var callers sync.WaitGroup
	decide := func(key string, reserves bool) (core.Result, error) {
		if !reserves {
			return lim.Allow(t.Context(), key)
		}
		r, err := lim.Reserve(t.Context(), key, 1)
		if err != nil {
			return core.Result{}, err
		}
		return r.Result, r.Settle(t.Context(), 1)
	}
	for range 64 {
		callers.Go(func() {
			for i := range todo {
				key := fmt.Sprint("user:", i%keys)
				res, err := decide(key, i/keys%3 == 0)
				if err != nil || res.Source != core.SourceRedis {
					t.Errorf("key %s: got %+v, %v; want a decision by Redis", key, res, err)
				}
				mu.Lock()
				if res.Allowed {
					admitted[key]++
				}
				mu.Unlock()
			}
		})
	}
	for i := range 10 * keys {
		todo <- i
	}
	close(todo)
	callers.Wait()
	if len(admitted) != keys {
		t.Errorf("calls on %d keys were admitted, want %d", len(admitted), keys)
	}
	return admitted
}

// TestTwemproxy uses several limits, Peek, Cancel and Reset behind twemproxy. With its option hash_tag all keys of a user
// are on one server.
func TestTwemproxy(t *testing.T) {
	t.Parallel()
	client := twemproxyClient(t, redistest.Twemproxy(t, redistest.Server(t), redistest.Server(t)))
	lim := core.MustNew(client, "several", append(exactly,
		core.FixedWindow(core.PerHour(10)), core.SlidingWindowLog(core.PerHour(12)), core.TokenBucket(core.PerHour(11)))...)
	for i := range 20 {
		key := fmt.Sprint("user:", i)
		left := func(when string, want int64) {
			t.Helper()
			if res, err := lim.Peek(t.Context(), key); err != nil || res.Remaining != want || res.Source != core.SourceRedis {
				t.Errorf("key %s, %s: %d units remain, %v; want %d", key, when, res.Remaining, err, want)
			}
		}
		left("at first", 10)
		charged := must(t)(permits.Acquire(lim, t.Context(), key, 4))
		left("after a charge", 6)
		check.OK(t, charged.Cancel(t.Context()))
		left("after a Cancel", 10)
		if _, err := lim.AllowN(t.Context(), key, 10); err != nil {
			t.Error(err)
		}
		check.OK(t, lim.Reset(t.Context(), key))
		left("after a Reset", 10)
	}
	if err := lim.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "a proxy before several servers") {
		t.Errorf("Check: got error %v, want one that names a proxy before several servers", err)
	}
}
