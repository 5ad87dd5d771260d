package outage

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/limits"
)

// What follows is trouble, and no outage: Redis decides all along, in every mode, exactly.

// Level: many callers in each mode. A script may be flushed at any time, also by a pipeline of the caller's own.
func TestScriptFlushedInEachMode(t *testing.T) {
	t.Parallel()
	const callers, calls = 16, 25
	e := newEnv(t, setup{})
	for _, m := range modes() {
		t.Run(m.name, func(t *testing.T) {
			l, watch := limiter(e.rdb, "flushed", append(m.options, core.DenyCache(0), core.Timeout(slack))...)
			t.Cleanup(func() { _ = l.Reset(t.Context(), "k") })
			var admitted atomic.Int64
			ended := make(chan struct{})
			var flushing, running sync.WaitGroup
			flushing.Go(func() {
				for flushes := 0; ; flushes++ {
					if _, err := e.rdb.Pipelined(t.Context(), func(pipe redis.Pipeliner) error {
						pipe.ScriptFlush(t.Context())
						pipe.Set(t.Context(), "other", flushes, time.Minute)
						pipe.ScriptFlush(t.Context())
						return nil
					}); err != nil {
						t.Error(err)
					}
					select {
					case <-ended:
						return
					default:
					}
				}
			})
			for range callers {
				running.Go(func() {
					for range calls {
						res, err := l.Allow(t.Context(), "k")
						if err != nil || res.Source != core.SourceRedis {
							t.Errorf("%+v, %v", res, err)
						}
						if res.Allowed {
							admitted.Add(1)
						}
					}
				})
			}
			running.Wait()
			close(ended)
			flushing.Wait()
			if used := e.used(t, "flushed", "k"); admitted.Load() != limit || used != limit {
				t.Errorf("%d admitted, %d charged, want %d", admitted.Load(), used, limit)
			}
			watch.wantOutages(t, 0)
			if n := watch.count(core.EventScriptLoad); n == 0 {
				t.Error("no event reports that the script was sent again")
			}
			if expiring(t, e.admin) == 0 {
				t.Error("no keys")
			}
			if err := l.Reset(t.Context(), "k"); err != nil {
				t.Error(err)
			}
		})
	}
}

// Level: single calls in each mode. A value that is not the Limiter's is replaced, and gets a TTL.
func TestForeignValueInEachMode(t *testing.T) {
	t.Parallel()
	e := newEnv(t, setup{})
	for _, m := range modes() {
		t.Run(m.name, func(t *testing.T) {
			l, watch := limiter(e.rdb, "typed", m.options...)
			if _, err := l.Allow(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
			keys, err := e.admin.Keys(t.Context(), "rl:typed:*").Result()
			if err != nil || len(keys) != 1 {
				t.Fatalf("%q, %v", keys, err)
			}
			for range 5 {
				e.do(t, "DEL "+keys[0])
				e.do(t, "RPUSH "+keys[0]+" a b c")
				if res, err := l.Allow(t.Context(), "k"); err != nil || res.Source != core.SourceRedis || res.Remaining != limit-1 {
					t.Errorf("%+v, %v", res, err)
				}
			}
			watch.wantOutages(t, 0)
			if expiring(t, e.admin) == 0 {
				t.Error("no keys")
			}
			e.do(t, "DEL "+keys[0])
		})
	}
}

// One connection for 256 callers: they wait for each other, which is no outage; and where Redis does not answer none waits
// for longer than the timeout, and no goroutine stays behind.
func TestPoolOfOne(t *testing.T) {
	base := runtime.NumGoroutine()
	for _, contextTimeout := range []bool{false, true} {
		t.Run(clientName(contextTimeout), func(t *testing.T) {
			check.Rounds(t, timeouts, func(t *check.Round, timeout time.Duration) { poolOfOne(t, base, contextTimeout, timeout) })
		})
	}
	check.NoGoroutineLeft(t, base)
}

func poolOfOne(t *check.Round, base int, contextTimeout bool, timeout time.Duration) {
	const callers = 256
	e := newEnv(t, setup{options: func(o *redis.Options) { o.PoolSize, o.ContextTimeoutEnabled = 1, contextTimeout }})
	clients := map[string]*redis.Client{}
	for _, m := range modes() {
		clients[m.name] = e.client(t)
	}
	each := func(part func(m mode)) {
		var running sync.WaitGroup
		for _, m := range modes() {
			running.Go(func() { part(m) })
		}
		running.Wait()
	}
	each(func(m mode) {
		l, watch := limiter(clients[m.name], "pool", append(m.options, core.DenyCache(0), core.Timeout(time.Minute))...)
		admitted := concurrently(callers, func() bool {
			res, err := l.Allow(t.Context(), m.name)
			if err != nil || res.Source != core.SourceRedis {
				t.Errorf("%s: %+v, %v", m.name, res, err)
			}
			return res.Allowed
		})
		if used := e.used(t, "pool", m.name); admitted != limit || used != limit {
			t.Errorf("%s: %d admitted, %d charged, want %d", m.name, admitted, used, limit)
		}
		watch.wantOutages(t, 0)
	})
	e.proxy.Silence()
	stuck := map[string]func(){}
	var mu sync.Mutex
	each(func(m mode) {
		l, watch := limiter(clients[m.name], "stuck", append(m.options, core.Timeout(timeout))...)
		admitted := concurrently(callers, func() (ok bool) {
			timed(t, timeout, func() {
				res, err := l.Allow(t.Context(), m.name)
				ok = m.during(t, res, err)
			})
			return ok
		})
		if m.share > 0 && admitted != limit/m.share {
			t.Errorf("%s: admitted %d, want %d", m.name, admitted, limit/m.share)
		}
		check.Eventually(t, "it is known that Redis is away", func() bool {
			_, _ = l.Peek(t.Context(), m.name) // a busy process probes first, and only where decisions are wanted
			return watch.count(core.EventFallbackOn) == 1
		})
		mu.Lock()
		defer mu.Unlock()
		stuck[m.name] = func() {
			awaitRedis(t, l, m.name)
			watch.wantOutages(t, 1)
		}
	})
	check.Eventually(t, "fewer goroutines than stalled calls", func() bool { return runtime.NumGoroutine() < base+callers/2 })
	e.proxy.Reset() // frees the connection that waits for an answer
	e.proxy.Pass()
	each(func(m mode) { stuck[m.name]() })
}

// concurrently calls f n times at once and counts what it admits.
func concurrently(n int, f func() bool) int64 {
	var admitted atomic.Int64
	var running sync.WaitGroup
	for range n {
		running.Go(func() {
			if f() {
				admitted.Add(1)
			}
		})
	}
	running.Wait()
	return admitted.Load()
}

// A refund that Redis refuses, because its memory is full, is an error, and what
// it was to give back stays charged. The entries of a log need no memory to go: its
// refund is done.
func TestRefundWithoutMemory(t *testing.T) {
	e := newEnv(t, setup{})
	all := map[string][]core.Option{"several": {core.FixedWindow(core.PerHour(20)), core.TokenBucket(core.PerHour(10))}}
	for _, v := range limits.All() {
		all[v.Name] = []core.Option{v.Limit(core.PerHour(10))}
	}
	for name, options := range all {
		t.Run(name, func(t *testing.T) {
			l := core.MustNew(e.rdb, "refund", append(options, core.FailClosed(), core.Timeout(slack))...)
			t.Cleanup(func() { _ = l.Reset(context.Background(), "k") })
			var charged core.Result
			for range 2 {
				res, err := l.AllowN(t.Context(), "k", 3)
				if err != nil || !res.Allowed {
					t.Fatalf("%+v, %v", res, err)
				}
				charged = res
			}
			e.do(t, "CONFIG SET maxmemory 1")
			err := l.Refund(t.Context(), charged)
			e.do(t, "CONFIG SET maxmemory 0")
			remaining := int64(4)
			switch {
			case err == nil && name != "several":
				remaining = 7
			case !errors.Is(err, core.ErrUnavailable):
				t.Errorf("Refund: %v, want ErrUnavailable", err)
			}
			awaitRedis(t, l, "k") // a server without memory is down
			if res, err := l.Peek(t.Context(), "k"); err != nil || res.Remaining != remaining {
				t.Errorf("after it %d remain, %v; want %d", res.Remaining, err, remaining)
			}
		})
	}
}
