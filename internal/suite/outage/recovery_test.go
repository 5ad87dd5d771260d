package outage

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
)

// An outage that comes and goes does not give the full limit each time, and is reported each time.
func TestFlapping(t *testing.T) {
	t.Parallel()
	const flaps = 3
	inEachMode(t, func(t *check.Round, m mode, timeout time.Duration) {
		e := newEnv(t, setup{}) // its own: each flaps by itself
		l, watch := limiter(e.rdb, "flapping", append(m.options, core.Timeout(timeout))...)
		var admitted int64
		for range flaps {
			awaitRedis(t, l, "k")
			e.proxy.Silence()
			// A busy process distrusts its timeouts: it takes a probe to know that Redis is away.
			known := func() bool { return watch.count(core.EventFallbackOn) > watch.count(core.EventFallbackOff) }
			for n, start := 0, time.Now(); n < limit/2 || !known() && time.Since(start) < check.Patience; n++ {
				res, err := l.Allow(t.Context(), "k")
				if m.during(t, res, err) {
					admitted++
				}
			}
			e.proxy.Pass()
		}
		awaitRedis(t, l, "k")
		watch.wantOutages(t, flaps)
		if m.share > 0 && admitted != limit/m.share {
			t.Errorf("%d outages admitted %d in all, want %d", flaps, admitted, limit/m.share)
		}
	})
}

// inOutage is for as long as a fault lasts, and until it is reported: a busy process doubts a server for seconds first.
func inOutage(start time.Time, timeout time.Duration, watch *watcher) bool {
	lasted := time.Since(start)
	return lasted < faultLasts(timeout) || watch.count(core.EventFallbackOn) == 0 && lasted < check.Patience
}

// Many callers at once: one log line, the limit once, and no caller is stuck.
func TestOutageUnderLoad(t *testing.T) {
	t.Parallel()
	const callers = 300 // far more than may be in flight before others wait for a batch
	inEachMode(t, func(t *check.Round, m mode, timeout time.Duration) {
		e := newEnv(t, setup{})
		l, watch := limiter(e.rdb, "load", append(m.options, core.Timeout(timeout))...)
		awaitRedis(t, l, "k")
		concurrently(callers, func() bool { // it is found out that they may share scripts: else each would be sent alone
			_, err := l.Peek(t.Context(), "k")
			return err == nil
		})
		awaitRedis(t, l, "k")
		e.proxy.Silence()
		var admitted atomic.Int64
		check.Together(callers, func(int) {
			for start := time.Now(); inOutage(start, timeout, watch); time.Sleep(5 * time.Millisecond) {
				timed(t, timeout, func() {
					res, err := l.Allow(t.Context(), "k")
					if m.during(t, res, err) {
						admitted.Add(1)
					}
				})
			}
		})
		e.proxy.Pass()
		awaitRedis(t, l, "k")
		watch.wantOutages(t, 1)
		if m.share > 0 && admitted.Load() != limit/m.share {
			t.Errorf("admitted %d, want %d", admitted.Load(), limit/m.share)
		}
		// What was under way when Redis went, and again while a busy process probed it; nothing after that. One that such a process
		// distrusts makes place for another before it is reported.
		if n := watch.count(core.EventOutage); n > inFlight*(1+whileProbed) || n > watch.before+2*inFlight {
			t.Errorf("%d calls failed, %d of them before it was known that Redis was away", n, watch.before)
		}
		if n := e.used(t, "load", "k"); n != 0 {
			t.Errorf("%d charged for calls that never reached Redis", n)
		}
	})
}
