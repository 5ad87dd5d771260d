package outage

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
)

// errBroken is the failure of a client whose switch says so: at once, and so no timeout.
var errBroken = errors.New("the client is broken")

// An observer that panics when it hears of an outage ends nothing: not the process, though that is in the background, and not the
// probes. Other limiters over the client hear of the outage, wait for it once in all, and it is logged once. Nothing of the probes
// stays in Redis.
func TestObserverPanics(t *testing.T) {
	t.Parallel()
	check.Rounds(t, timeouts, func(t *check.Round, timeout time.Duration) {
		e := newEnv(t, setup{})
		w := newWatcher()
		l := core.MustNew(e.rdb, "panics", core.FixedWindow(core.PerHour(limit)), core.FailOpen(), core.Timeout(timeout), core.Logger(slog.New(w)),
			core.Observe(func(_ context.Context, e core.Event) {
				if e.Kind != core.EventDecision && e.Kind != core.EventScriptLoad && e.Kind != core.EventOutage {
					panic("an observer's own mistake")
				}
			}))
		other, watch := limiter(e.rdb, "other", core.FailOpen(), core.Timeout(timeout))
		for range 2 {
			awaitRedis(t, l, "k")
			awaitRedis(t, other, "k")
			e.proxy.Silence()
			before := watch.count(core.EventFallbackOn)
			slow := 0
			check.Eventually(t, "the outage is told", func() bool {
				for _, each := range []*core.Limiter{l, other} {
					begun := time.Now()
					if res, err := each.Allow(t.Context(), "k"); err != nil || res.Source != core.SourceNone {
						t.Errorf("during the outage: %+v, %v", res, err)
					}
					if time.Since(begun) > timeout/2 {
						slow++
					}
				}
				return watch.count(core.EventFallbackOn) > before
			})
			if slow < 1 || slow > 1+whileProbed { // some more in a busy process
				t.Errorf("%d calls waited for Redis, want one", slow)
			}
			e.proxy.Pass()
		}
		awaitRedis(t, l, "k")
		awaitRedis(t, other, "k") // only what is still used hears of it
		if on, off := watch.count(core.EventFallbackOn), watch.count(core.EventFallbackOff); on != 2 || off != 2 {
			t.Errorf("the other limiter heard of %d outages and %d ends, want 2 of each", on, off)
		}
		lines, others := w.logged(), watch.logged()
		if warn, info := lines[slog.LevelWarn]+others[slog.LevelWarn], lines[slog.LevelInfo]+others[slog.LevelInfo]; warn != 1 || info != 1 {
			t.Errorf("log lines %v and %v, want a WARN and an INFO: one outage is logged in a minute", lines, others)
		}
		if lines[slog.LevelError] != 1 || others[slog.LevelError] != 0 {
			t.Errorf("log lines %v and %v, want an ERROR of the observer that panics", lines, others)
		}
		check.Eventually(t, "the probes have left nothing in Redis", func() bool {
			keys, err := e.admin.Keys(t.Context(), "*probe*").Result()
			return err == nil && len(keys) == 0
		})
	})
}
