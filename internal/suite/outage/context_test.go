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

// Level: single calls in an outage. A caller that cancels while it waits for Redis is let go with the context's error, which
// says nothing of Redis: at once, or where the client itself ends a call with its deadline, once the call ends, within the timeout.
// One whose deadline is near gets the outage policy's answer before it; that is a failure of Redis only if Redis had enough time.
func TestCallerLeavesInOutage(t *testing.T) {
	for _, contextTimeout := range []bool{false, true} {
		t.Run(clientName(contextTimeout), func(t *testing.T) {
			t.Parallel()
			inEachMode(t, func(t *check.Round, m mode, timeout time.Duration) {
				letGo := timeout / 2
				if contextTimeout {
					letGo = timeout * 5 / 4
				}
				leave(t, newEnv(t, withContextTimeout(contextTimeout)), m, timeout, letGo)
			})
		})
	}
}

// leave lets callers leave, who must be let go within letGo.
func leave(t *check.Round, e *env, m mode, timeout, letGo time.Duration) {
	l, watch := limiter(e.rdb, "left", append(m.options, core.Timeout(timeout))...)
	awaitRedis(t, l, "k")
	e.proxy.Silence()
	inTime := 0
	for range 4 { // more than three failures would be an outage
		cancelSoon(t, l, timeout/5, letGo)
		if decideBefore(t, l, m, 100*time.Millisecond) {
			inTime++
		}
	}
	if inTime == 0 {
		t.Error("no caller in a hurry had its answer in time")
	}
	if n := watch.count(core.EventOutage); n != 0 {
		t.Errorf("%d outages though callers only left or were in a hurry: %v", n, watch.causes)
	}
	watch.wantOutages(t, 0)

	if !decideBefore(t, l, m, timeout*4/5) { // three quarters of it are enough
		t.Errorf("a deadline of %v: the answer came too late", timeout*4/5)
	}
	check.Eventually(t, "the fallback goes on", func() bool { return watch.count(core.EventFallbackOn) == 1 })
	if n := watch.count(core.EventOutage); n != 1 {
		t.Errorf("a deadline of %v: %d outages; want one", timeout*4/5, n)
	}
	start := time.Now()
	res, err := l.Allow(t.Context(), "k") // one that would wait longer need not
	if took := time.Since(start); took > timeout/2 {
		t.Errorf("after that a call waited for %v", took)
	}
	m.during(t, res, err)
	wantCanceled(t, l)
	e.proxy.Pass()
	awaitRedis(t, l, "k")
	watch.wantOutages(t, 1)
}

// cancelSoon cancels a call that waits for Redis after some time, and checks that it returns within letGo.
func cancelSoon(t *check.Round, l *core.Limiter, after, letGo time.Duration) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	time.AfterFunc(after, cancel)
	start := time.Now()
	if res, err := l.Allow(ctx, "k"); !errors.Is(err, context.Canceled) || res.Allowed {
		t.Errorf("a caller that left: %+v, %v", res, err)
	}
	if took := time.Since(start); took > letGo {
		t.Errorf("a caller that left after %v was let go after %v", after, took)
	}
}

// decideBefore makes a call with a deadline, and checks that the policy decides. It reports whether that was in time: a
// machine may be late.
func decideBefore(t *check.Round, l *core.Limiter, m mode, deadline time.Duration) bool {
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	res, err := l.Allow(ctx, "hasty")
	if ctx.Err() != nil {
		return false
	}
	m.during(t, res, err)
	return true
}

// lateContext ends a little after its deadline, as every context does on a busy machine.
type lateContext struct {
	context.Context

	deadline time.Time
}

func (c lateContext) Deadline() (time.Time, bool) { return c.deadline, true }

// A caller in a hurry has the policy's answer, and is no outage, also where the client's own timer fires before the
// context's.
func TestDeadlineIsTheCallers(t *testing.T) {
	t.Parallel()
	const deadline, late = 10 * time.Millisecond, 5 * time.Second
	for _, contextTimeout := range []bool{false, true} {
		e := newEnv(t, withContextTimeout(contextTimeout))
		l, watch := limiter(e.rdb, "deadline", core.FailOpen(), core.Timeout(time.Minute))
		awaitRedis(t, l, "k")
		e.proxy.Silence()
		for range 5 {
			ctx, cancel := context.WithTimeout(t.Context(), deadline+late)
			if res, err := l.Allow(lateContext{ctx, time.Now().Add(deadline)}, "k"); err != nil || res.Source != core.SourceNone {
				t.Errorf("ContextTimeoutEnabled %v: %+v, %v", contextTimeout, res, err)
			}
			cancel()
		}
		if n := watch.count(core.EventOutage); n != 0 {
			t.Errorf("ContextTimeoutEnabled %v: %d outages though only callers were in a hurry: %v", contextTimeout, n, watch.causes)
		}
		watch.wantOutages(t, 0)
	}
}
