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

// errBroken is the error of a client that fails at once, without a timeout.
var errBroken = errors.New("the client is broken")

// TestObserverPanics checks that an observer that panics when it receives the event of an outage stops neither the process,
// although the event comes in the background, nor the probes. Other limiters over the same client are notified of the
// outage, only one call of all limiters waits for Redis, and the outage is logged once. The probes leave nothing in Redis.
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
			check.Eventually(t, "the outage is reported", func() bool {
				for _, each := range []*core.Limiter{l, other} {
					begun := time.Now()
					if res, err := each.Allow(t.Context(), "k"); err != nil || res.Source != core.SourceNone {
						t.Errorf("during the outage: got %+v, %v; want it admitted without a decision", res, err)
					}
					if time.Since(begun) > timeout/2 {
						slow++
					}
				}
				return watch.count(core.EventFallbackOn) > before
			})
			if slow < 1 || slow > 1+whileProbed { // in a busy process some more calls wait
				t.Errorf("%d calls waited for Redis, want 1 (in a busy process a few more)", slow)
			}
			e.proxy.Pass()
		}
		awaitRedis(t, l, "k")
		awaitRedis(t, other, "k") // only a limiter that is still in use is notified
		if on, off := watch.count(core.EventFallbackOn), watch.count(core.EventFallbackOff); on != 2 || off != 2 {
			t.Errorf("the other limiter was notified of %d outages and %d ends of one, want 2 of each", on, off)
		}
		lines, others := w.logged(), watch.logged()
		if warn, info := lines[slog.LevelWarn]+others[slog.LevelWarn], lines[slog.LevelInfo]+others[slog.LevelInfo]; warn != 1 || info != 1 {
			t.Errorf("the log lines by level are %v and %v, want one WARN and one INFO in all: at most one outage is logged per minute", lines, others)
		}
		if lines[slog.LevelError] != 1 || others[slog.LevelError] != 0 {
			t.Errorf("the log lines by level are %v and %v, want one ERROR, about the observer that panics", lines, others)
		}
		check.Eventually(t, "the probes have left nothing in Redis", func() bool {
			keys, err := e.admin.Keys(t.Context(), "*probe*").Result()
			return err == nil && len(keys) == 0
		})
	})
}
