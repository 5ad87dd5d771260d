package outage

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
)

// Requests with a deadline as long as the default Timeout, as of an http.TimeoutHandler: in an outage each gets the policy's
// answer in time, only a first wave waits for it, and the outage is reported once.
func TestDeadlinesInOutage(t *testing.T) {
	t.Parallel()
	var running sync.WaitGroup
	for _, m := range []mode{{"FailOpen", []core.Option{core.FailOpen()}, 0}, {"FailLocal", []core.Option{core.FailLocal()}, 1}} {
		for _, callers := range []int{1, 4, 8} {
			running.Go(func() {
				t.Run(fmt.Sprint(m.name, ", callers: ", callers), func(t *testing.T) {
					check.Rounds(t, timeouts[1:], func(t *check.Round, deadline time.Duration) { deadlines(t, m, callers, deadline) })
				})
			})
		}
	}
	running.Wait()
}

func deadlines(t *check.Round, m mode, callers int, deadline time.Duration) {
	const lasts = 3 * time.Second
	e := newEnv(t, setup{})
	l, watch := limiter(e.rdb, "deadlines", m.options...) // the default Timeout
	awaitRedis(t, l, "k")
	e.proxy.Silence()
	var wave, slow, late, answers atomic.Int64
	var running sync.WaitGroup
	for range callers {
		running.Go(func() {
			for start := time.Now(); time.Since(start) < lasts; time.Sleep(20 * time.Millisecond) {
				ctx, cancel := context.WithTimeout(t.Context(), deadline)
				known, begun := watch.count(core.EventFallbackOn) > 0, time.Now()
				res, err := l.Allow(ctx, "k")
				answers.Add(1)
				switch {
				case time.Since(begun) < deadline/2:
				case known:
					slow.Add(1)
				default:
					wave.Add(1)
				}
				if ctx.Err() != nil {
					late.Add(1)
				} else {
					m.during(t, res, err)
				}
				cancel()
			}
		})
	}
	running.Wait()
	e.proxy.Pass()
	awaitRedis(t, l, "k")
	watch.wantOutages(t, 1)
	t.Logf("%d answers, %d of them slow before the outage was known, %d after; %d late; %d failed calls",
		answers.Load(), wave.Load(), slow.Load(), late.Load(), watch.count(core.EventOutage))
	if late.Load() > 0 {
		t.Errorf("%d of %d answers came after the deadline", late.Load(), answers.Load())
	}
	if slow.Load() > 0 || wave.Load() > int64(callers*(1+whileProbed)) { // one wave, or some in a busy process
		t.Errorf("%d and %d answers of %d callers were slow, want no more than a first wave", wave.Load(), slow.Load(), callers)
	}
}

// A caller in a hurry opens no one's breaker: while Redis takes longer than it has, Redis decides for the others.
func TestHastyAmongPatient(t *testing.T) {
	t.Parallel()
	check.Rounds(t, timeouts[2:], func(t *check.Round, timeout time.Duration) {
		const calls = 20
		e := newEnv(t, setup{})
		l, watch := limiter(e.rdb, "hasty", core.FailOpen(), core.Timeout(timeout))
		other, _ := watched(e.rdb, "patient", core.FixedWindow(core.PerHour(1000)), core.FailOpen(), core.Timeout(timeout))
		awaitRedis(t, l, "k")
		awaitRedis(t, other, "k")
		e.proxy.Latency(25 * time.Millisecond) // each way
		for range calls {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			res, err := l.Allow(ctx, "k")
			if ctx.Err() == nil && (err != nil || res.Source != core.SourceNone) {
				t.Errorf("in a hurry: %+v, %v; want the policy's answer", res, err)
			}
			cancel()
			if res, err := other.Allow(t.Context(), "k"); err != nil || res.Source != core.SourceRedis {
				t.Errorf("with time: %+v, %v; want a decision of Redis", res, err)
			}
		}
		watch.wantOutages(t, 0)
		if n := watch.count(core.EventOutage); n != 0 {
			t.Errorf("%d outages: %v", n, watch.causes)
		}
	})
}
