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

// A caller that leaves while it waits for Redis is let go with its context's error: at once, or, where the client itself ends a call
// with its deadline and the caller had none, once the call ends. The call goes on, and it alone tells that Redis is away: after that
// the policy decides, also for those who have little time.
func TestCallerLeavesInOutage(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(ctx context.Context, after time.Duration) (context.Context, context.CancelFunc){
		"canceled": func(ctx context.Context, after time.Duration) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(after, cancel)
			return ctx, cancel
		},
		"deadline": context.WithTimeout,
	} {
		for _, contextTimeout := range []bool{false, true} {
			t.Run(name+", "+clientName(contextTimeout), func(t *testing.T) {
				t.Parallel()
				check.Rounds(t, timeouts[1:], func(t *check.Round, timeout time.Duration) {
					letGo := timeout / 2
					if contextTimeout && name == "canceled" {
						letGo = timeout * 5 / 4
					}
					e := newEnv(t, withContextTimeout(contextTimeout))
					l, watch := limiter(e.rdb, "left", core.FailOpen(), core.Timeout(timeout))
					awaitRedis(t, l, "k")
					e.proxy.Silence()
					ctx, cancel := leave(t.Context(), timeout/5)
					defer cancel()
					start := time.Now()
					if res, err := l.Allow(ctx, "k"); err == nil || !errors.Is(err, ctx.Err()) || res.Allowed {
						t.Errorf("a caller that left: %+v, %v", res, err)
					}
					if took := time.Since(start); took > letGo {
						t.Errorf("a caller that left after %v was let go after %v", timeout/5, took)
					}
					check.Eventually(t, "its call tells that Redis is away", func() bool { return watch.count(core.EventFallbackOn) > 0 })
					if took := time.Since(start); took < timeout*9/10 {
						t.Errorf("that was known after %v, before the timeout of %v", took, timeout)
					}
					hurried, cancel := context.WithTimeout(t.Context(), timeout/5)
					defer cancel()
					if res, err := l.Allow(hurried, "k"); err != nil || res.Source != core.SourceNone {
						t.Errorf("a caller with little time: %+v, %v; want what the policy decides", res, err)
					}
					e.proxy.Pass()
					awaitRedis(t, l, "k")
					watch.wantOutages(t, 1)
				})
			})
		}
	}
}
