package core

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/lease"
	"github.com/redislimit/redislimit/internal/testkit/gate"
)

// hotFor is the duration of the leases in these tests.
const hotFor = 100 * time.Millisecond

// exchanging is a client that admits everything. A test can delay the calls that take leases, which are called exchanges
// here.
type exchanging struct {
	plain     atomic.Int32  // calls that took no lease, except probes
	exchanges atomic.Int32  // calls that took a lease
	gate      chan struct{} // if not nil, exchanges wait until it is closed
	fails     error         // if not nil, exchanges return this error
}

func (c *exchanging) Process(ctx context.Context, cmd redis.Cmder) error {
	const at = 1_800_000_000_000_000
	args := cmd.Args()
	reply, op := []int64{1, at, 0, 0, 0}, fmt.Sprint(args[len(args)-5])
	if op > "1" && len(op) == 1 {
		reply = []int64{7, at, 0, 0, 0, 0, 7, at + 1_000_000}
	}
	if op != "2" {
		if key, _ := args[3].(string); !strings.Contains(key, "~probe") { // probes come from a background goroutine
			c.plain.Add(1)
		}
		return set(cmd, reply...)
	}
	c.exchanges.Add(1)
	if c.gate != nil {
		select {
		case <-c.gate:
		case <-ctx.Done():
			cmd.SetErr(ctx.Err())
			return ctx.Err()
		}
	}
	if c.fails != nil {
		cmd.SetErr(c.fails)
		return c.fails
	}
	return set(cmd, reply...)
}

// TestLeaseAwaited checks that requests wait for a lease that another request is taking, but no more requests than the lease
// will have units for: the others call Redis at once. No request waits longer than the Timeout.
func TestLeaseAwaited(t *testing.T) {
	t.Parallel()
	const waiters, leased = 10, lease.HotDecisions - 1 // the lease has as many units as were used before, and the request that takes the lease uses one
	const others = waiters - leased                    // the requests that do not wait for the lease
	for name, c := range map[string]struct {
		end    func(c *exchanging, cancel context.CancelFunc) // ends the exchange, or the requests that wait for it
		leased int32
		plain  int32 // how many calls without a lease follow
		err    error
	}{
		"granted":   {func(c *exchanging, _ context.CancelFunc) { close(c.gate) }, leased, 0, nil},
		"refused":   {func(c *exchanging, _ context.CancelFunc) { c.fails = redisError("WRONGTYPE"); close(c.gate) }, 0, lease.HotDecisions, nil},
		"canceled":  {func(_ *exchanging, cancel context.CancelFunc) { cancel() }, 0, 0, context.Canceled},
		"no answer": {func(*exchanging, context.CancelFunc) {}, 0, 0, ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				client := &exchanging{gate: make(chan struct{})}
				lim := MustNew(client, "x", TokenBucket(PerSecond(1000)), FailClosed(), Lease(hotFor))
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				for range lease.HotDecisions {
					if _, err := lim.Allow(ctx, "k"); err != nil {
						t.Fatal(err)
					}
				}
				go func() { _, _ = lim.Allow(context.Background(), "k") }() // takes a lease
				synctest.Wait()
				begun := time.Now()
				var leased atomic.Int32
				results := make(chan error, waiters)
				for range waiters {
					go func() {
						res, err := lim.Allow(ctx, "k")
						if res.Source == SourceLease {
							leased.Add(1)
						}
						results <- err
					}()
					synctest.Wait()
				}
				if n := client.exchanges.Load(); n != 1 || client.plain.Load() != lease.HotDecisions+others {
					t.Errorf("%d exchanges and %d other calls during the exchange, want 1 and %d", n, client.plain.Load()-lease.HotDecisions, others)
				}
				for range others {
					if err := <-results; err != nil {
						t.Errorf("a request that did not wait for the lease: got error %v, want none", err)
					}
				}
				c.end(client, cancel)
				for range waiters - others {
					if err := <-results; !errors.Is(err, c.err) || c.err == nil && err != nil {
						t.Errorf("a request that waited for the lease: got error %v, want %v", err, c.err)
					}
				}
				synctest.Wait() // until the request that takes the lease has returned
				if after := client.plain.Load() - lease.HotDecisions - others; leased.Load() != c.leased || after != c.plain {
					t.Errorf("%d decisions from the lease and %d calls afterwards, want %d and %d", leased.Load(), after, c.leased, c.plain)
				}
				if waited := time.Since(begun); waited > defaultTimeout {
					t.Errorf("the requests waited for %v, want at most %v", waited, defaultTimeout)
				}
				time.Sleep(time.Second) // until the exchange has ended
				_ = lim.Close()
				time.Sleep(time.Minute) // until the background goroutines have ended
			})
		})
	}
}

// BenchmarkColdKey measures how much time leases add to a decision on a rarely used key, within this process. Limiters with
// and without leases take turns, and the fastest turn of each counts.
func BenchmarkColdKey(b *testing.B) {
	const turn = 200
	client := redis.NewClient(&redis.Options{ContextTimeoutEnabled: true})
	client.AddHook(gate.Around(func(cmds []redis.Cmder, _ func() error) error { return set(cmds[0], 1, 1_800_000_000_000_000, 0, 0, 0) }))
	b.Cleanup(func() { _ = client.Close() })
	for _, count := range []int{1, 10_000, 1_000_000} {
		b.Run(fmt.Sprintf("%d keys", count), func(b *testing.B) {
			keys := make([]string, count)
			for i := range keys {
				keys[i] = fmt.Sprint("user:", i)
			}
			opts := Options(TokenBucket(PerSecond(1000)), FailClosed(), Timeout(time.Minute))
			limiters := [2]*Limiter{MustNew(client, "plain", opts), MustNew(client, "lease", opts, Lease(hotFor), simulation{HotDecisions: math.MaxInt64})} // no key is used often enough for a lease
			fastest, ctx := [2]time.Duration{math.MaxInt64, math.MaxInt64}, context.Background()
			for b.Loop() {
				for i, lim := range limiters {
					first := rand.IntN(count)
					begun := time.Now()
					for k := range turn {
						if res, err := lim.Allow(ctx, keys[(first+k*7919)%count]); err != nil || !res.Allowed {
							b.Fatal(res, err)
						}
					}
					fastest[i] = min(fastest[i], time.Since(begun))
				}
			}
			b.ReportMetric(float64(fastest[0])/turn, "ns/plain")
			b.ReportMetric(float64(fastest[1])/turn, "ns/lease")
			b.ReportMetric(float64(fastest[1]-fastest[0])/turn, "ns-added")
		})
	}
}
