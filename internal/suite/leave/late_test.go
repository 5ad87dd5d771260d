package leave

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/permits"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

// TestLateReply makes Redis answer after the Timeout, when FailLocal has already decided. Slots are freed soon after, by
// their id. Units are given back if the client still reads the reply. Otherwise they are charged when their hold expires,
// like the units of a process that died.
func TestLateReply(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]place{"server": {redistest.Server(t).Addr}, "cluster": redistest.Cluster(t)} {
		for _, contextTimeout := range []bool{false, true} {
			for _, batch := range []int{1, 2} {
				t.Run(fmt.Sprintf("%s, ContextTimeoutEnabled %v, MaxBatch(%d)", name, contextTimeout, batch), func(t *testing.T) {
					t.Parallel()
					check.Rounds(t, []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second}, func(t *check.Round, timeout time.Duration) {
						late(t, open(t, p, contextTimeout), contextTimeout, core.Options(core.FailLocal(), core.MaxBatch(batch), core.Timeout(timeout)), timeout)
					})
				})
			}
		}
	}
}

func late(t *check.Round, e *env, contextTimeout bool, opts core.Option, timeout time.Duration) {
	const n, units = 24, 10
	hold := 6 * timeout
	e.soon = 10 * timeout
	window := core.FixedWindow(core.PerDay(1000))
	inFlight := e.limiter(t, slots, opts)
	held := e.limiter(t, window, opts, core.Hold(time.Minute))
	expires := e.limiter(t, window, opts, core.Hold(hold))
	e.away(4 * roundTrip)
	check.Together(60, func(i int) { // makes connections, loads scripts, and lets the limiters measure the long round trip
		r, err := []*limiter{inFlight, held, expires}[i%3].Reserve(t.Context(), "k", 1)
		if err = errors.Join(err, r.Cancel(t.Context())); err != nil { // Cancel of a nil handle does nothing
			t.Error(err)
		}
	})
	e.quiet(t)
	e.away(7 * timeout / 5)
	begun := time.Now()
	var all []*permits.Any
	var mu sync.Mutex
	keep := func(r *permits.Any, err error) {
		mu.Lock()
		defer mu.Unlock()
		if all = append(all, r); err != nil || r.Source != core.SourceFallback {
			t.Errorf("got %+v, %v; want a decision by the fallback", r, err)
		}
	}
	check.Together(n, func(i int) {
		switch i % 4 {
		case 0:
			keep(permits.Reserve(held.Limiter, t.Context(), "k", units))
		case 1:
			keep(permits.Reserve(expires.Limiter, t.Context(), "k", units))
		default:
			keep(permits.Acquire(inFlight.Limiter, t.Context(), "k", 1))
		}
	})
	check.Within(t, e.soon, "Redis has run all sent calls", func() bool {
		return time.Since(begun) > timeout && inFlight.remains() < 50 && held.remains() < 1000 && expires.remains() < 1000
	})
	time.Sleep(time.Until(begun.Add(7 * timeout / 5)))
	e.away(0)
	inFlight.is("slots are free", whole)
	if !contextTimeout {
		held.is("held units are back", whole)
		expires.is("held units are back", whole)
	} else {
		time.Sleep(time.Until(begun.Add(hold / 2)))
		sent := 1000 - expires.remains()
		time.Sleep(time.Until(begun.Add(hold*7/6 + 2*timeout))) // expiries are rounded up by at most a sixth
		if used := 1000 - expires.remains(); used != sent || used%units != 0 || used == 0 {
			t.Errorf("%d units are used after the hold has expired, want the %d that were held", used, sent)
		}
		if err := expires.auditor.Reset(t.Context(), "k"); err != nil || expires.remains() != 1000 {
			t.Errorf("after a Reset, which returned %v, %d units remain; want 1000, as the units were charged and are not held", err, expires.remains())
		}
	}
	for _, r := range all { // the fallback's handles
		check.OK(t, r.Cancel(t.Context()))
	}
	if !contextTimeout && held.remains() != 1000 {
		t.Errorf("%d units remain, want 1000", held.remains())
	}
}

// TestShortDeadlines makes calls with short deadlines while Redis is far away but healthy. The outage policy, whatever it
// is, makes no decision, and no more than the limit is admitted.
func TestShortDeadlines(t *testing.T) {
	t.Parallel()
	const limit, workers, calls = 5, 10, 10
	one := place{redistest.Server(t).Addr}
	for _, roundTrip := range []time.Duration{5 * time.Millisecond, 130 * time.Millisecond} {
		for name, policy := range map[string]core.Option{"FailOpen": core.FailOpen(), "FailLocal": core.FailLocal(), "FailClosed": core.FailClosed()} {
			for _, contextTimeout := range []bool{false, true} {
				t.Run(fmt.Sprintf("%v, %s, ContextTimeoutEnabled %v", roundTrip, name, contextTimeout), func(t *testing.T) {
					t.Parallel()
					check.Rounds(t, []time.Duration{500 * time.Millisecond, 2 * time.Second, 8 * time.Second}, func(t *check.Round, timeout time.Duration) {
						e := open(t, one, contextTimeout)
						l := e.limiter(t, core.FixedWindow(core.PerHour(limit)), policy, core.DenyCache(0), core.Timeout(timeout))
						l.remains() // loads the script: otherwise a connection, NOSCRIPT and EVAL would take four round trips
						e.away(roundTrip)
						var admitted, left atomic.Int32
						check.Together(workers, func(int) {
							for range calls {
								deadline := 100*time.Microsecond + rand.N(400*time.Millisecond)
								if rand.N(2) == 0 {
									deadline /= 50
								}
								ctx, cancel := context.WithTimeout(t.Context(), deadline)
								res, err := l.Allow(ctx, "k")
								switch {
								case err != nil && (!errors.Is(err, context.DeadlineExceeded) || errors.Is(err, core.ErrUnavailable)):
									t.Errorf("Allow: got error %v, want nil or context.DeadlineExceeded", err)
								case err != nil:
									left.Add(1)
								case res.Allowed:
									admitted.Add(1)
								}
								cancel()
							}
						})
						if admitted.Load() > limit || l.outages.Load() > 0 || left.Load() == 0 {
							t.Errorf("%d calls were admitted by a limit of %d, %d callers left, and %d outages were reported; want at most the limit, some callers, and 0 outages", admitted.Load(), limit, left.Load(), l.outages.Load())
						}
						if n := l.remains(); n != 0 {
							t.Errorf("%d units remain, want 0: calls whose callers left are charged, too", n)
						}
					})
				})
			}
		}
	}
}
