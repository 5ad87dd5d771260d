package outage

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
)

// The test of this file makes trouble that is not an outage: Redis decides all the time, exactly, in every mode.

// TestPoolOfOne makes 256 callers share one connection. They wait for each other, which is no outage. When Redis stops
// answering, no caller waits longer than the Timeout, and no goroutine stays behind.
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
				t.Errorf("%s: got %+v, %v; want a decision by Redis", m.name, res, err)
			}
			return res.Allowed
		})
		if used := e.used(t, "pool", m.name); admitted != limit || used != limit {
			t.Errorf("%s: %d calls were admitted and %d units charged, want %d of both", m.name, admitted, used, limit)
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
			t.Errorf("%s: the fallback admitted %d calls, want %d", m.name, admitted, limit/m.share)
		}
		check.Eventually(t, "the limiter knows that Redis is away", func() bool {
			_, _ = l.Peek(t.Context(), m.name) // a busy process probes first, and only while calls are made
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
	e.proxy.Reset() // frees the connection that waits for a reply
	e.proxy.Pass()
	each(func(m mode) { stuck[m.name]() })
}

// concurrently calls f n times at once and returns how many of these calls returned true.
func concurrently(n int, f func() bool) int64 {
	var admitted atomic.Int64
	check.Together(n, func(int) {
		if f() {
			admitted.Add(1)
		}
	})
	return admitted.Load()
}
