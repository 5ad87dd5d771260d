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

// Level: single calls in an outage. A caller that leaves while it waits for Redis gets the context's error, in every
// mode. It is no outage, and neither does it leave the breaker half-open for good.
func TestCallerLeavesInOutage(t *testing.T) {
	for _, contextTimeout := range []bool{false, true} {
		t.Run(clientName(contextTimeout), func(t *testing.T) {
			t.Parallel()
			inEachMode(t, func(t *check.Round, m mode, timeout time.Duration) {
				leave(t, newEnv(t, withContextTimeout(contextTimeout)), m, timeout)
			})
		})
	}
}

func leave(t *check.Round, e *env, m mode, timeout time.Duration) {
	l, watch := limiter(e.rdb, "left", append(m.options, core.Timeout(timeout))...)
	leaves := map[error]func() (context.Context, context.CancelFunc){
		context.Canceled: func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(timeout/5, cancel)
			return ctx, cancel
		},
		context.DeadlineExceeded: func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(t.Context(), timeout/5)
		},
	}
	try := func() {
		for want, make := range leaves {
			ctx, cancel := make()
			timed(t, timeout, func() {
				if res, err := l.Allow(ctx, "k"); !errors.Is(err, want) || res.Allowed {
					t.Errorf("a caller that left: %+v, %v; want %v", res, err, want)
				}
			})
			cancel()
		}
	}
	awaitRedis(t, l, "k")
	e.proxy.Silence()
	for range 4 { // more than three failures would be an outage
		try()
	}
	if n := watch.count(core.EventOutage); n != 0 {
		t.Errorf("%d outages though only callers left: %v", n, watch.causes)
	}
	watch.wantOutages(t, 0)

	// Now it is an outage; and the caller of the probe that would end it leaves, twice.
	for range 3 {
		res, err := l.Allow(t.Context(), "k")
		m.during(t, res, err)
	}
	for range 2 {
		time.Sleep(1100 * time.Millisecond) // the cooldown
		try()
	}
	e.proxy.Pass()
	awaitRedis(t, l, "k")
	watch.wantOutages(t, 1)
}

// lateContext ends a little after its deadline, as every context does on a busy machine.
type lateContext struct {
	context.Context

	deadline time.Time
}

func (c lateContext) Deadline() (time.Time, bool) { return c.deadline, true }

// A caller's deadline is no outage either where the client's own timer, set to the same instant, fires before the
// context's.
func TestDeadlineIsTheCallers(t *testing.T) {
	t.Parallel()
	const deadline, late = 10 * time.Millisecond, 50 * time.Millisecond
	for _, contextTimeout := range []bool{false, true} {
		e := newEnv(t, withContextTimeout(contextTimeout))
		l, watch := limiter(e.rdb, "deadline", core.FailOpen(), core.Timeout(time.Minute))
		awaitRedis(t, l, "k")
		e.proxy.Silence()
		for range 5 {
			ctx, cancel := context.WithTimeout(t.Context(), deadline+late)
			if res, err := l.Allow(lateContext{ctx, time.Now().Add(deadline)}, "k"); !errors.Is(err, context.DeadlineExceeded) || res.Allowed {
				t.Errorf("ContextTimeoutEnabled %v: %+v, %v", contextTimeout, res, err)
			}
			cancel()
		}
		if n := watch.count(core.EventOutage); n != 0 {
			t.Errorf("ContextTimeoutEnabled %v: %d outages though only callers left: %v", contextTimeout, n, watch.causes)
		}
		watch.wantOutages(t, 0)
	}
}
