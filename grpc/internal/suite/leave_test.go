package suite_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc/codes"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	grpclimit "github.com/redislimit/redislimit/grpc"
	"github.com/redislimit/redislimit/internal/testkit/faultproxy"
	"github.com/redislimit/redislimit/internal/testkit/redisclient"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
	"github.com/redislimit/redislimit/keyfunc"
)

// TestDeadline uses clients whose deadlines (grpc-timeout) are shorter or longer than a decision takes. FailOpen is for outages of Redis: it must
// not admit calls beyond the limit because the deadline of a client is near.
func TestDeadline(t *testing.T) {
	const limit, calls = 5, 100
	for _, far := range []time.Duration{5 * time.Millisecond, 130 * time.Millisecond} {
		for _, deadline := range []time.Duration{3 * time.Millisecond, 150 * time.Millisecond, patience} {
			t.Run(fmt.Sprintf("deadline=%v,redis=%v", deadline, far), func(t *testing.T) {
				t.Parallel()
				proxy := faultproxy.New(t, redistest.Server(t).Addr)
				proxy.Latency(far / 2) // each way
				rdb := redisclient.New(t, &redis.Options{Addr: proxy.Addr(), ReadTimeout: patience})
				lim := core.MustNew(rdb, "grpc", core.FixedWindow(core.PerHour(limit)), core.FailOpen(), core.Timeout(patience))
				t.Cleanup(func() { _ = lim.Close() })
				var admitted, late atomic.Int64
				b := &testbed{T: t, serve: func(context.Context, func()) error { admitted.Add(1); return nil }}
				b.behind(by(lim))
				var callers sync.WaitGroup
				for range calls / 10 {
					callers.Go(func() {
						for range 10 {
							ctx, cancel := context.WithTimeout(t.Context(), deadline)
							if a := b.callIn(ctx); a.code == codes.DeadlineExceeded || a.code == codes.Unavailable {
								late.Add(1)
							}
							cancel()
						}
					})
				}
				callers.Wait()
				b.stop()
				n, ended := admitted.Load(), late.Load()
				if n > limit || n < limit && (ended == 0 || deadline == patience) {
					t.Errorf("%d of %d calls were admitted, want %d; the deadline ended %d calls", n, calls, limit, ended)
				}
			})
		}
	}
}

// TestLeavers makes many clients leave: before the decision, during it, while they wait for their turn, while the handler works, and after it.
// Afterwards all slots must be free, and exactly the cost of the handlers that ran must be charged.
func TestLeavers(t *testing.T) {
	const leavers, atOnce, units, slots, cost = 300, 50, 1_000_000, 50, 3
	proxy := faultproxy.New(t, redistest.Server(t).Addr)
	proxy.Latency(2 * time.Millisecond)
	rdb := redisclient.New(t, &redis.Options{Addr: proxy.Addr(), ReadTimeout: patience})
	window, flight := core.FixedWindow(core.PerDay(units)), core.InFlight(slots, core.SlotTTL(time.Hour))
	slow := core.LeakyBucket(core.Per(10, time.Millisecond), core.Burst(units))
	for name, c := range map[string]struct {
		limits []core.Option
		opts   []guard.Option
		cost   int64 // charged in the last limit for each handler that ran; 0 if the test cannot know it
	}{
		"InFlight":  {[]core.Option{flight}, nil, 0},
		"CostAfter": {[]core.Option{flight, window, core.Hold(time.Hour)}, []guard.Option{guard.CostAfter(), estimate(7)}, cost},
		"Queue":     {[]core.Option{flight, slow}, nil, 0},
	} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/stream=%t", name, stream), func(t *testing.T) {
				lim := core.MustNew(rdb, "leavers", append(c.limits, core.FailClosed(), core.DenyCache(0), core.Timeout(patience))...)
				t.Cleanup(func() { _ = lim.Close() })
				key := func(keyfunc.Request) (string, error) { return t.Name(), nil }
				var ran atomic.Int64
				b := &testbed{T: t, stream: stream, serve: func(ctx context.Context, send func()) error {
					ran.Add(1)
					grpclimit.SetCost(ctx, cost)
					send()
					time.Sleep(5 * time.Millisecond)
					return nil
				}}
				b.behind(mount{lim, key, c.opts})
				leave(b, leavers, atOnce)
				b.stop()
				want := []int64{slots}
				switch {
				case c.cost > 0:
					want = append(want, units-c.cost*ran.Load())
				case len(c.limits) > 1:
					want = append(want, units) // all turns in the queue are past
				}
				untilLeft(t, lim, t.Name(), want...)
				if n := ran.Load(); n == 0 || n == leavers {
					t.Errorf("%d handlers of %d calls ran, want some but not all", n, leavers)
				}
			})
		}
	}
}

// leave makes calls that are canceled at random times. One in ten is not canceled: its client waits for the answer.
func leave(b *testbed, calls, atOnce int) {
	var clients sync.WaitGroup
	defer clients.Wait()
	random := rand.New(rand.NewPCG(1, 2))
	places := make(chan struct{}, atOnce)
	for i := range calls {
		places <- struct{}{}
		stays := time.Duration(random.Int64N(int64(20 * time.Millisecond)))
		if i%10 == 0 {
			stays = patience
		}
		clients.Go(func() {
			defer func() { <-places }()
			ctx, cancel := context.WithTimeout(b.Context(), stays)
			defer cancel()
			b.callIn(ctx)
		})
	}
}
