package outage

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
)

// The tests of this file check that calls that wait in this process are not mistaken for an outage of Redis.

// TestBurst makes tens of thousands of decisions at once, which is no outage. A decision that this process could not send
// in time returns an error that says so.
func TestBurst(t *testing.T) {
	if testing.Short() {
		t.Skip("tens of thousands of goroutines")
	}
	check.IdleRounds(t, tooBusy, func(t *check.Round) {
		const burst = 70_000 // more than may wait in this process
		e := newEnv(t, setup{})
		l, watch := watched(e.server.Client(t), "burst", core.FixedWindow(core.PerHour(1e9)), core.FailClosed(), core.DenyCache(0))
		awaitRedis(t, l, "k")
		var byRedis, queued, other, slowest atomic.Int64
		var callers sync.WaitGroup
		begin := make(chan struct{})
		for i := range burst {
			callers.Go(func() {
				<-begin
				start := time.Now()
				switch _, err := l.Allow(t.Context(), fmt.Sprint("k", i%1000)); {
				case err == nil:
					byRedis.Add(1)
				case strings.Contains(err.Error(), "waiting in this process"):
					queued.Add(1)
				default:
					other.Add(1)
				}
				for took := int64(time.Since(start)); ; {
					if most := slowest.Load(); took <= most || slowest.CompareAndSwap(most, took) {
						break
					}
				}
			})
		}
		close(begin)
		callers.Wait()
		t.Logf("of %d decisions at once Redis made %d, %d were not sent, and %d got no answer; the slowest took %v",
			burst, byRedis.Load(), queued.Load(), other.Load(), time.Duration(slowest.Load()))
		watch.wantOutages(t, 0)
		if queued.Load() > 0 {
			check.Eventually(t, "an event reports the decisions that were not sent", func() bool { return watch.count(core.EventOverload) > 0 })
		}
		if most := time.Duration(slowest.Load()); most > 500*time.Millisecond+slack { // the default Timeout
			t.Errorf("a caller waited for %v, want at most the default Timeout of 500ms and some slack", most)
		}
		awaitRedis(t, l, "k")
	})
}

// TestFarRedis checks that a Redis at a distance of 200 ms makes as many decisions when it is offered more than before, not
// fewer, and that it is not mistaken for one that is away.
func TestFarRedis(t *testing.T) {
	if testing.Short() {
		t.Skip("5 s under load")
	}
	check.IdleRounds(t, tooBusy, func(t *check.Round) {
		less, more := far(t, 2000), far(t, 5000)
		if more < 0.95*less {
			t.Errorf("offered 2,000 decisions per second Redis made %.0f per second, and offered 5,000 only %.0f; want as many", less, more)
		}
	})
}

// far returns how many decisions per second a Redis at a distance of 200 ms makes if the given number per second is
// offered.
func far(t *check.Round, offered int) float64 {
	const lasts, connections, oneWay = 2500 * time.Millisecond, 40, 100 * time.Millisecond
	e := newEnv(t, setup{options: func(o *redis.Options) { o.PoolSize, o.MinIdleConns = connections, connections }})
	l, watch := watched(e.rdb, "far", core.FixedWindow(core.PerHour(1e9)), core.FailOpen(), core.DenyCache(0))
	awaitRedis(t, l, "k")
	check.Eventually(t, "the connections are made", func() bool { return e.rdb.PoolStats().IdleConns >= connections })
	// A new connection says hello when it is first used, which takes several round trips that are not part of this test.
	// Since go-redis 9.23 pipelines have connections of their own.
	var hello sync.WaitGroup
	for range connections {
		hello.Go(func() { _ = e.rdb.Do(t.Context(), "blpop", "none", "0.3").Err() })
		hello.Go(func() {
			_, _ = e.rdb.Pipelined(t.Context(), func(p redis.Pipeliner) error { return p.Do(t.Context(), "blpop", "none", "0.3").Err() })
		})
	}
	hello.Wait()
	e.proxy.Latency(oneWay)
	var byRedis, unanswered atomic.Int64
	var callers sync.WaitGroup
	start := time.Now()
	for sent := 0; time.Since(start) < lasts; time.Sleep(time.Millisecond) {
		for due := int(time.Since(start).Seconds() * float64(offered)); sent < due; sent++ {
			key := fmt.Sprint("k", sent%300)
			callers.Go(func() {
				if res, err := l.Allow(t.Context(), key); err == nil && res.Source == core.SourceRedis {
					byRedis.Add(1)
				} else {
					unanswered.Add(1)
				}
			})
		}
	}
	callers.Wait()
	e.proxy.Pass()
	perSecond := float64(byRedis.Load()) / lasts.Seconds()
	t.Logf("offered %d decisions per second, Redis made %.0f per second and the outage policy %d in all", offered, perSecond, unanswered.Load())
	watch.wantOutages(t, 0)
	return perSecond
}
