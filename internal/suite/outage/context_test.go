package outage

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
)

// wantCanceled checks that a call whose context is cancelled returns its error, whatever state Redis is in.
func wantCanceled(tb testing.TB, l *core.Limiter) {
	tb.Helper()
	ctx, cancel := context.WithCancel(tb.Context())
	cancel()
	if res, err := l.Allow(ctx, "left"); !errors.Is(err, context.Canceled) || res.Allowed {
		tb.Errorf("a cancelled call: %+v, %v", res, err)
	}
}

// A caller that leaves while it waits for Redis is let go with its context's error, which says nothing of Redis: at once, or
// where the client itself ends a call with its deadline, once the call ends, within the timeout.
func TestCallerLeavesInOutage(t *testing.T) {
	for _, contextTimeout := range []bool{false, true} {
		t.Run(clientName(contextTimeout), func(t *testing.T) {
			t.Parallel()
			check.Rounds(t, timeouts[1:], func(t *check.Round, timeout time.Duration) {
				letGo := timeout / 2
				if contextTimeout {
					letGo = timeout * 5 / 4
				}
				e := newEnv(t, withContextTimeout(contextTimeout))
				l, watch := limiter(e.rdb, "left", core.FailOpen(), core.Timeout(timeout))
				awaitRedis(t, l, "k")
				e.proxy.Silence()
				for range 4 { // more than three failures would be an outage
					ctx, cancel := context.WithCancel(t.Context())
					time.AfterFunc(timeout/5, cancel)
					start := time.Now()
					if res, err := l.Allow(ctx, "k"); !errors.Is(err, context.Canceled) || res.Allowed {
						t.Errorf("a caller that left: %+v, %v", res, err)
					}
					if took := time.Since(start); took > letGo {
						t.Errorf("a caller that left after %v was let go after %v", timeout/5, took)
					}
				}
				if n := watch.count(core.EventOutage); n != 0 {
					t.Errorf("%d outages though callers only left: %v", n, watch.causes)
				}
				watch.wantOutages(t, 0)
			})
		})
	}
}
