package outage

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
)

// An outage that comes and goes gives no fresh budget each time, and is told each time.
func TestFlapping(t *testing.T) {
	t.Parallel()
	const flaps = 3
	inEachMode(t, func(t *testing.T, m mode) {
		w := newWorld(t, setup{}) // its own: each flaps by itself
		l, watch := limiter(w.rdb, "flapping", append(m.options, core.Timeout(timeout))...)
		var admitted int64
		for range flaps {
			back(t, l, "k")
			w.proxy.Silence()
			for range limit / 2 {
				res, err := l.Allow(t.Context(), "k")
				if m.during(t, res, err) {
					admitted++
				}
			}
			w.proxy.Pass()
		}
		back(t, l, "k")
		watch.told(t, flaps)
		if m.share > 0 && admitted != limit/m.share {
			t.Errorf("%d outages admitted %d in all, want %d", flaps, admitted, limit/m.share)
		}
	})
}

// Whoever counts the breaker's states sees each of them, with one caller and a probe that fails.
func TestBreakerTellsEveryState(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	l, watch := limiter(w.rdb, "states", core.FailOpen(), core.Timeout(timeout))
	allow := func() {
		if _, err := l.Allow(t.Context(), "k"); err != nil {
			t.Error(err)
		}
	}
	allow()
	w.proxy.Silence()
	allow()
	time.Sleep(1100 * time.Millisecond)
	allow()
	w.proxy.Pass()
	back(t, l, "k")
	want := []string{"open", "half-open", "open", "half-open", "closed"}
	if !slices.Equal(watch.states, want) {
		t.Errorf("told %q, want %q", watch.states, want)
	}
	watch.told(t, 1)
}

// Many callers at once: one line, one budget, and nobody is stuck.
func TestOutageUnderLoad(t *testing.T) {
	t.Parallel()
	const callers = 64
	inEachMode(t, func(t *testing.T, m mode) {
		w := newWorld(t, setup{})
		l, watch := limiter(w.rdb, "load", append(m.options, core.Timeout(timeout))...)
		back(t, l, "k")
		w.proxy.Silence()
		var admitted atomic.Int64
		var running sync.WaitGroup
		for range callers {
			running.Go(func() {
				for start := time.Now(); time.Since(start) < faultLasts; time.Sleep(5 * time.Millisecond) {
					timed(t, timeout, func() {
						res, err := l.Allow(t.Context(), "k")
						if m.during(t, res, err) {
							admitted.Add(1)
						}
					})
				}
			})
		}
		running.Wait()
		w.proxy.Pass()
		back(t, l, "k")
		watch.told(t, 1)
		if m.share > 0 && admitted.Load() != limit/m.share {
			t.Errorf("admitted %d, want %d", admitted.Load(), limit/m.share)
		}
		// All that were under way when Redis went, and then one in each cooldown.
		if n := watch.count(core.EventOutage); n > callers+2+int(faultLasts/time.Second) {
			t.Errorf("%d calls failed", n)
		}
		if n := w.used(t, "load", "k"); n != 0 {
			t.Errorf("%d charged for calls that never reached Redis", n)
		}
	})
}
