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
	patient   = 55 * time.Second // the Timeout where no call is to take that long
)

type take func(l *core.Limiter, ctx context.Context, key string, n int64) (*permits.Any, error)

var acquire, reserve take = permits.Acquire, permits.Reserve

// A kind is what callers leave, and how each limit of the key is when all have left.
type kind struct {
	name   string
	limits core.Option
	take   take
	left   func(core.Result) bool
}

var kinds = []kind{
	{"slots", slots, acquire, whole},
	{"bucket", bucket, reserve, whole},
	{"window", core.FixedWindow(core.PerDay(1000)), reserve, whole},
	{"log", core.SlidingWindowLog(core.PerDay(1000)), reserve, whole},
	{"bucket and slots", core.Options(bucket, slots), reserve, whole},
	// A plain charge stays: only the slots are free.
	{"charges and slots", core.Options(bucket, slots), acquire, func(r core.Result) bool { return r.LimitName != "inflight" || whole(r) }},
}

var (
	slots  = core.InFlight(50, core.SlotTTL(time.Minute))
	bucket = core.TokenBucket(core.PerHour(1), core.Burst(1000)) // nothing of it drains during a test
)

// TestLeave has 500 callers leave at every stage of the decision. Then all is there again, at once.
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
		l.is("all is free again", k.left)
		if left.Load() == 0 || l.outages.Load() > 0 {
			t.Errorf("%d left; %d outages", left.Load(), l.outages.Load())
		}
	})
}

// visit is one caller, which leaves at some time from before the decision until some round trips later, or
// stays and ends its reservation. visit reports whether the caller left.
func visit(t testing.TB, l *limiter, i int, take take) bool {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	after := roundTrip * time.Duration(i%64) / 8
	switch {
	case i%4 == 0:
		time.AfterFunc(after, cancel)
	case i%8 == 1:
		cancel()
	case i%8 != 2: // which stays
		ctx, cancel = context.WithTimeout(ctx, after)
		defer cancel()
	}
	r, err := take(l.Limiter, ctx, "k", 1)
	if err != nil {
		if ctx.Err() == nil || !errors.Is(err, ctx.Err()) {
			t.Error(err)
		}
		return true
	}
	if i%3 == 0 {
		cancel() // what it has ends all the same
	}
	if err := r.Cancel(ctx); err != nil && !errors.Is(err, ctx.Err()) {
		t.Error(err)
	}
	return false
}

// TestLeaveQueue makes callers leave before their place in a queue has begun, so that the place is given
// back.
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

// TestLeaveLease makes callers leave while a lease is taken: the lease is for all callers, and is not lost
// with them.
func TestLeaveLease(t *testing.T) {
	t.Parallel()
	one := place{redistest.Server(t).Addr}
	for _, contextTimeout := range []bool{false, true} {
		for _, limits := range []core.Limit{core.FixedWindow(core.PerDay(1_000_000)), core.TokenBucket(core.PerHour(1), core.Burst(800_000))} {
			for name, take := range map[string]take{"Reserve": reserve, "Acquire": acquire} {
				t.Run(fmt.Sprintf("%s, ContextTimeoutEnabled %v, %s", limits.Name(), contextTimeout, name), func(t *testing.T) {
					t.Parallel()
					// A machine that is late by a part of a lease has it charged.
					check.Rounds(t, []time.Duration{400 * time.Millisecond, time.Second, time.Second, time.Second}, func(t *check.Round, lasts time.Duration) {
						kept := int64(0)
						if name == "Acquire" { // of a lease that has ended, charges are not taken back
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
	const heat = 40 * 1000 // so that leases are of thousands of units
	l.env.away(roundTrip)
	check.Together(40, func(i int) {
		time.Sleep(time.Duration(i) * lasts / 40)
		if _, err := l.AllowN(t.Context(), "k", 1000); err != nil {
			t.Error(err)
		}
	})
	check.Together(callers, func(i int) {
		time.Sleep(time.Duration(i) * lasts / 125) // over four leases
		visit(t, l, i, take)
	})
	l.env.quiet(t)
	l.is("what is charged is what was admitted", func(r core.Result) bool {
		used := r.Limit - r.Remaining
		return used >= heat && used <= heat+kept
	})
	if n := l.leased.Load(); n < 2000 {
		t.Errorf("%d units were leased: too few to tell", n)
	}
}
