package leave

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/permits"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

const (
	callers   = 500
	roundTrip = 10 * time.Millisecond
	patient   = 55 * time.Second // a Timeout that no call reaches
)

// A take is a method that takes units or slots.
type take func(l *core.Limiter, ctx context.Context, key string, n int64) (*permits.Any, error)

var acquire, reserve take = permits.Acquire, permits.Reserve

// A kind is a combination of limits and a method. left reports whether a limit has the right units once all callers have
// left.
type kind struct {
	name   string
	limits core.Option
	take   take
	left   func(core.Result) bool
}

// kinds are the combinations with which every stage is tested.
var kinds = []kind{
	{"slots", slots, acquire, whole},
	{"bucket", bucket, reserve, whole},
	{"window", core.FixedWindow(core.PerDay(1000)), reserve, whole},
	{"log", core.SlidingWindowLog(core.PerDay(1000)), reserve, whole},
	{"bucket and slots", core.Options(bucket, slots), reserve, whole},
	// The charge of an Acquire stays: only the slots are freed.
	{"charges and slots", core.Options(bucket, slots), acquire, func(r core.Result) bool { return r.LimitName != "inflight" || whole(r) }},
}

var (
	slots  = core.InFlight(50, core.SlotTTL(time.Minute))
	bucket = core.TokenBucket(core.PerHour(1), core.Burst(1000)) // no unit comes back during a test
)

// TestLeave makes 500 callers leave at every stage of a decision. Soon afterwards all units and slots are free again.
func TestLeave(t *testing.T) {
	base := runtime.NumGoroutine()
	t.Run("all", func(t *testing.T) {
		server, cluster := place{redistest.Server(t).Addr}, place(redistest.Cluster(t))
		for _, k := range kinds {
			t.Run("memory, "+k.name, func(t *testing.T) { leave(t, nil, false, k) })
			for _, contextTimeout := range []bool{false, true} {
				for _, batch := range []int{1, 128} {
					for name, p := range map[string]place{"server": server, "cluster": cluster} {
						t.Run(fmt.Sprintf("%s, ContextTimeoutEnabled %v, MaxBatch(%d), %s", name, contextTimeout, batch, k.name), func(t *testing.T) {
							t.Parallel()
							leave(t, p, contextTimeout, k, core.MaxBatch(batch))
						})
					}
				}
			}
		}
	})
	check.NoGoroutineLeft(t, base)
}

func leave(t *testing.T, p place, contextTimeout bool, k kind, opts ...core.Option) {
	check.Rounds(t, soon, func(t *check.Round, soon time.Duration) {
		e := open(t, p, contextTimeout)
		e.soon = soon
		l := e.limiter(t, k.limits, append(opts, core.FailClosed(), core.Timeout(patient))...)
		e.away(roundTrip)
		var left atomic.Int32
		check.Together(callers, func(i int) {
			if visit(t, l, i, k.take) {
				left.Add(1)
			}
		})
		e.quiet(t)
		l.is("everything is free again", k.left)
		if left.Load() == 0 || l.outages.Load() > 0 {
			t.Errorf("%d callers left, and %d outages were reported; want some callers, and 0 outages", left.Load(), l.outages.Load())
		}
	})
}

// visit is one caller. It leaves at some time between before the decision and some round trips later, or stays and cancels
// its reservation. visit reports whether the caller left.
func visit(t testing.TB, l *limiter, i int, take take) bool {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	after := roundTrip * time.Duration(i%64) / 8
	switch {
	case i%4 == 0:
		time.AfterFunc(after, cancel)
	case i%8 == 1:
		cancel()
	case i%8 != 2: // a caller with i%8 == 2 stays
		ctx, cancel = context.WithTimeout(ctx, after)
		defer cancel()
	}
	r, err := take(l.Limiter, ctx, "k", 1)
	if err != nil {
		if ctx.Err() == nil || !errors.Is(err, ctx.Err()) {
			t.Errorf("taking a unit: got error %v, want nil or the error of the context", err)
		}
		return true
	}
	if i%3 == 0 {
		cancel() // Cancel gives back the units even after the context has ended
	}
	if err := r.Cancel(ctx); err != nil && !errors.Is(err, ctx.Err()) {
		t.Error(err)
	}
	return false
}

// TestLeaveQueue makes callers leave before their place in a queue has begun: the place is given back.
func TestLeaveQueue(t *testing.T) {
	t.Parallel()
	one := place{redistest.Server(t).Addr}
	for _, contextTimeout := range []bool{false, true} {
		check.Rounds(t, soon, func(t *check.Round, soon time.Duration) {
			e := open(t, one, contextTimeout)
			e.soon = soon
			check.Together(20, func(i int) {
				l := e.limiter(t, core.LeakyBucket(core.PerHour(1), core.Burst(10)), core.FailClosed(), core.Timeout(patient))
				if _, err := l.AllowN(t.Context(), "k", 1); err != nil {
					t.Error(err)
				}
				e.away(roundTrip)
				ctx, cancel := context.WithTimeout(t.Context(), roundTrip*time.Duration(i+1)/20)
				defer cancel()
				if r, err := l.Acquire(ctx, "k", 5); err == nil {
					_ = r.Cancel(ctx)
				}
				e.quiet(t)
				l.is("the place is free again", func(r core.Result) bool { return r.Remaining == 9 })
			})
		})
	}
}

// TestLeaveLease makes callers leave while a lease is taken: the lease is for all callers, and is not lost when some leave.
func TestLeaveLease(t *testing.T) {
	t.Parallel()
	one := place{redistest.Server(t).Addr}
	for _, contextTimeout := range []bool{false, true} {
		for _, limits := range []core.Limit{core.FixedWindow(core.PerDay(1_000_000)), core.TokenBucket(core.PerHour(1), core.Burst(800_000))} {
			for name, take := range map[string]take{"Reserve": reserve, "Acquire": acquire} {
				t.Run(fmt.Sprintf("%s, ContextTimeoutEnabled %v, %s", limits.Name(), contextTimeout, name), func(t *testing.T) {
					t.Parallel()
					// If the machine is late by a part of a lease, the lease expires and is charged, so the last rounds are long.
					check.Rounds(t, []time.Duration{400 * time.Millisecond, time.Second, time.Second, time.Second}, func(t *check.Round, lasts time.Duration) {
						kept := int64(0)
						if name == "Acquire" { // a Cancel after the lease has ended gives back nothing
							kept = callers
						}
						leaveLease(t, open(t, one, contextTimeout).limiter(t, limits, core.FailClosed(), core.Timeout(patient), core.Lease(lasts)), take, lasts, kept)
					})
				})
			}
		}
	}
}

func leaveLease(t *check.Round, l *limiter, take take, lasts time.Duration, kept int64) {
	const heat = 40 * 1000 // enough for leases of thousands of units
	l.env.away(roundTrip)
	check.Together(40, func(i int) {
		time.Sleep(time.Duration(i) * lasts / 40)
		if _, err := l.AllowN(t.Context(), "k", 1000); err != nil {
			t.Error(err)
		}
	})
	check.Together(callers, func(i int) {
		time.Sleep(time.Duration(i) * lasts / 125) // the callers come over the duration of four leases
		visit(t, l, i, take)
	})
	l.env.quiet(t)
	l.is("only the admitted units are charged", func(r core.Result) bool {
		used := r.Limit - r.Remaining
		return used >= heat && used <= heat+kept
	})
	if n := l.leased.Load(); n < 2000 {
		t.Errorf("%d units were leased, want at least 2000: too few for this test", n)
	}
}
