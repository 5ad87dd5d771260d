package outage

import (
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
)

// probing reports whether a goroutine of this process probes a server.
func probing() bool {
	stacks := make([]byte, 1<<20)
	return strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "runProbes")
}

// The goroutine that probes a server ends by itself once no decision wants it, and at once when the last limiter over the client is
// closed.
func TestProbesEnd(t *testing.T) {
	check.Rounds(t, timeouts[1:], probesEnd)
}

func probesEnd(t *check.Round, timeout time.Duration) {
	e := newEnv(t, withContextTimeout(true)) // else go-redis waits for the replies to abandoned calls, for many seconds
	l, watch := limiter(e.rdb, "ends", core.FailOpen(), core.Timeout(timeout))
	other, _ := limiter(e.rdb, "other", core.FailOpen(), core.Timeout(timeout))
	awaitRedis(t, l, "k")
	base := runtime.NumGoroutine()
	fail := func() {
		e.proxy.Silence()
		check.Eventually(t, "a probe is made", func() bool {
			_, _ = l.Allow(t.Context(), "k")
			return probing() && watch.count(core.EventFallbackOn) > watch.count(core.EventFallbackOff)
		})
	}
	mend := func(l *core.Limiter) {
		e.proxy.Pass()
		awaitRedis(t, l, "k")
		check.Eventually(t, "no probes of a server that is well", func() bool { return !probing() })
	}
	fail()
	check.Eventually(t, "the probes end without decisions", func() bool { return !probing() })
	mend(l) // and begin again with one

	fail()
	for range 2 { // closing twice is closing once
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	if !probing() {
		t.Error("the probes have ended though a limiter needs them")
	}
	if err := other.Close(); err != nil {
		t.Error(err)
	}
	// By themselves they would go on for longer than a second.
	check.Within(t, timeout, "the probes end with the last limiter", func() bool { return !probing() })
	mend(other) // decisions after Close are as before
	check.NoGoroutineLeft(t, base)
}

// A server that answers PING and refuses to write, as its memory is full, is down until it has memory: it does not come and
// go.
func TestOutOfMemoryDoesNotFlap(t *testing.T) {
	t.Parallel()
	const lasts = 3 * time.Second
	for name, limit := range map[string]core.Limit{
		"fixed window": core.FixedWindow(core.PerHour(1e6)), "token bucket": core.TokenBucket(core.PerHour(1e6)),
		"counter": core.SlidingWindowCounter(core.PerHour(1e6)), "log": core.SlidingWindowLog(core.PerHour(1e5)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check.Rounds(t, timeouts[1:], func(t *check.Round, timeout time.Duration) {
				e := newEnv(t, setup{})
				l, watch := watched(e.rdb, "full", limit, core.FailOpen(), core.Timeout(timeout))
				awaitRedis(t, l, "k")
				e.do(t, "CONFIG SET maxmemory 1")
				var callers sync.WaitGroup
				for range 8 {
					callers.Go(func() {
						for start := time.Now(); time.Since(start) < lasts; time.Sleep(10 * time.Millisecond) {
							if res, err := l.Allow(t.Context(), "k"); err != nil || res.Source != core.SourceNone {
								t.Errorf("without memory: %+v, %v", res, err)
							}
						}
					})
				}
				callers.Wait()
				if off := watch.count(core.EventFallbackOff); off != 0 || watch.probes() < 2 {
					t.Errorf("Redis was found well %d times by %d probes though it has no memory", off, watch.probes())
				}
				e.do(t, "CONFIG SET maxmemory 0")
				awaitRedis(t, l, "k")
				watch.wantOutages(t, 1)
			})
		})
	}
}
