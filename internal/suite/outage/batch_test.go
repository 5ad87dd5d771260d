package outage

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/faultproxy"
)

// crowd is how many callers come at once: far more than may be in flight before others wait for a batch.
const crowd = 300

// inFlight is how many calls may be under way before others wait for a batch.
const inFlight = 4

// crowded makes as many calls at once, each for a key of its own, and checks that none waits longer than the timeout,
// whatever is ahead of it.
func crowded(tb testing.TB, l *core.Limiter, timeout time.Duration, prefix string, check func(core.Result, error)) {
	tb.Helper()
	var callers sync.WaitGroup
	for i := range crowd {
		callers.Go(func() {
			timed(tb, timeout, func() {
				res, err := l.Allow(tb.Context(), fmt.Sprint(prefix, i))
				check(res, err)
			})
		})
	}
	callers.Wait()
}

// A reply that is lost with many decisions in it may have charged each of them once. None is sent again.
func TestBatchReplyLost(t *testing.T) {
	t.Parallel()
	for _, contextTimeout := range []bool{false, true} {
		e := newEnv(t, withContextTimeout(contextTimeout))
		l, _ := limiter(e.rdb, "lost", core.FailClosed(), core.Timeout(slack))
		awaitRedis(t, l, "k")
		e.proxy.DropReply("EVALSHA")
		var answered atomic.Int64
		crowded(t, l, slack, "k", func(_ core.Result, err error) {
			if err == nil {
				answered.Add(1)
			}
		})
		e.proxy.Pass()
		if answered.Load() > 0 {
			t.Errorf("%d have an answer", answered.Load())
		}
		charged := 0
		for i := range crowd {
			switch n := e.used(t, "lost", fmt.Sprint("k", i)); {
			case n > 1:
				t.Errorf("key %d was charged %d times", i, n)
			case n == 1:
				charged++
			}
		}
		if charged == 0 {
			t.Error("no lost reply was one of a call that ran")
		}
	}
}

// A Cluster that is silent from the start costs no more than the timeout either, though its nodes are not known yet.
func TestBatchUnknownCluster(t *testing.T) {
	t.Parallel()
	timeout := timeouts[0]
	e := newEnv(t, setup{})
	e.proxy.Silence()
	silent := faultproxy.New(t, e.server.Addr)
	silent.Silence()
	rdb := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: []string{e.proxy.Addr(), silent.Addr()}, DialTimeout: time.Minute, ReadTimeout: time.Minute,
	})
	t.Cleanup(func() { _ = rdb.Close() })
	l, _ := limiter(rdb, "unknown", core.FailOpen(), core.Timeout(timeout))
	for range 3 {
		crowded(t, l, timeout, "k", func(res core.Result, err error) {
			if err != nil || res.Source != core.SourceNone {
				t.Errorf("%+v, %v", res, err)
			}
		})
	}
}
