package outage

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
)

// TestFlapping checks that an outage that comes and goes does not admit the full limit each time, and that each outage is
// reported.
func TestFlapping(t *testing.T) {
	t.Parallel()
	const flaps = 3
	inEachMode(t, func(t *check.Round, m mode, timeout time.Duration) {
		e := newEnv(t, setup{}) // each mode has a server of its own, because each fails at a different time
		l, watch := limiter(e.rdb, "flapping", append(m.options, core.Timeout(timeout))...)
		var admitted int64
		for range flaps {
			awaitRedis(t, l, "k")
			e.proxy.Silence()
			// A busy process does not trust its timeouts: it knows that Redis is away only after a probe.
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
			t.Errorf("%d outages admitted %d calls in all, want %d", flaps, admitted, limit/m.share)
		}
	})
}

// inOutage reports whether calls should go on: they do as long as a fault lasts, and until the outage is reported, because
// a busy process first probes a server for seconds.
func inOutage(start time.Time, timeout time.Duration, watch *watcher) bool {
	lasted := time.Since(start)
	return lasted < faultLasts(timeout) || watch.count(core.EventFallbackOn) == 0 && lasted < check.Patience
}

// TestOutageUnderLoad checks an outage with many callers at once: one line is logged, the fallback admits its share only
// once, and no caller hangs.
func TestOutageUnderLoad(t *testing.T) {
	t.Parallel()
	const callers = 300 // far more than may be in flight before others wait for a batch
	inEachMode(t, func(t *check.Round, m mode, timeout time.Duration) {
		e := newEnv(t, setup{})
		l, watch := limiter(e.rdb, "load", append(m.options, core.Timeout(timeout))...)
		awaitRedis(t, l, "k")
		concurrently(callers, func() bool { // the limiter finds out that calls may share a script; otherwise each would be sent alone
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
			t.Errorf("%d calls were admitted, want %d", admitted.Load(), limit/m.share)
		}
		// Calls may fail that were in flight when the outage began and, in a busy process, when it was probed; later calls may not.
		// A call whose timeout a busy process does not trust makes room for another call before the failure is reported.
		if n := watch.count(core.EventOutage); n > inFlight*(1+whileProbed) || n > watch.before+2*inFlight {
			t.Errorf("%d calls failed, %d of them before the limiter knew that Redis was away; want only the calls in flight", n, watch.before)
		}
		if n := e.used(t, "load", "k"); n != 0 {
			t.Errorf("%d units are charged, want 0: the calls never reached Redis", n)
		}
	})
}
