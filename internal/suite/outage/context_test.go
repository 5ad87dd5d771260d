package outage

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
)

// cancelled checks that a caller who has left is told so, whatever state Redis is in.
func cancelled(t *testing.T, l *core.Limiter) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if res, err := l.Allow(ctx, "left"); !errors.Is(err, context.Canceled) || res.Allowed {
		t.Errorf("a cancelled call: %+v, %v", res, err)
	}
}

// A caller who leaves while Redis is waited for gets the context's error, in every mode. It is no outage, and neither
// does it leave the breaker half-open for good.
func TestCallerLeaves(t *testing.T) {
	for _, heeds := range []bool{false, true} {
		name := map[bool]string{false: "defaults", true: "ContextTimeoutEnabled"}[heeds]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inEachMode(t, func(t *testing.T, m mode) {
				leave(t, newWorld(t, setup{options: func(o *redis.Options) { o.ContextTimeoutEnabled = heeds }}), m)
			})
		})
	}
}

func leave(t *testing.T, w *world, m mode) {
	l, watch := limiter(w.rdb, "left", append(m.options, core.Timeout(timeout))...)
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
		t.Helper()
		for want, make := range leaves {
			ctx, cancel := make()
			timed(t, timeout, func() {
				if res, err := l.Allow(ctx, "k"); !errors.Is(err, want) || res.Allowed {
					t.Errorf("a caller who left: %+v, %v; want %v", res, err, want)
				}
			})
			cancel()
		}
	}
	back(t, l, "k")
	w.proxy.Silence()
	for range 4 { // more than three failures would be an outage
		try()
	}
	if n := watch.count(core.EventOutage); n != 0 {
		t.Errorf("%d outages though only callers left: %v", n, watch.causes)
	}
	watch.told(t, 0)

	// Now it is an outage; and the probe that would end it is given up by its caller, twice.
	for range 3 {
		res, err := l.Allow(t.Context(), "k")
		m.during(t, res, err)
	}
	for range 2 {
		time.Sleep(1100 * time.Millisecond) // the cooldown
		try()
	}
	w.proxy.Pass()
	back(t, l, "k")
	watch.told(t, 1)
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
	for _, heeds := range []bool{false, true} {
		w := newWorld(t, setup{options: func(o *redis.Options) { o.ContextTimeoutEnabled = heeds }})
		l, watch := limiter(w.rdb, "deadline", core.FailOpen(), core.Timeout(time.Minute))
		back(t, l, "k")
		w.proxy.Silence()
		for range 5 {
			ctx, cancel := context.WithTimeout(t.Context(), deadline+late)
			if res, err := l.Allow(lateContext{ctx, time.Now().Add(deadline)}, "k"); !errors.Is(err, context.DeadlineExceeded) || res.Allowed {
				t.Errorf("ContextTimeoutEnabled %v: %+v, %v", heeds, res, err)
			}
			cancel()
		}
		if n := watch.count(core.EventOutage); n != 0 {
			t.Errorf("ContextTimeoutEnabled %v: %d outages though only callers left: %v", heeds, n, watch.causes)
		}
		watch.told(t, 0)
	}
}
