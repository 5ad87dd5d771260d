package outage

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/faultproxy"
)

// crowd is how many ask at once: far more than fly before anybody waits.
const crowd = 300

// crowded has everybody ask at once, each for a key of their own, and checks that nobody waits longer than the timeout,
// whatever is ahead of them.
func crowded(t *testing.T, l *core.Limiter, prefix string, check func(core.Result, error)) {
	t.Helper()
	var callers sync.WaitGroup
	for i := range crowd {
		callers.Go(func() {
			timed(t, timeout, func() {
				res, err := l.Allow(t.Context(), fmt.Sprint(prefix, i))
				check(res, err)
			})
		})
	}
	callers.Wait()
}

// A server that falls silent costs a crowd one timeout, not one for each flight; then nobody waits; and it comes back by
// itself.
func TestTogetherSilence(t *testing.T) {
	base := runtime.NumGoroutine()
	t.Run("modes", func(t *testing.T) {
		inEachMode(t, func(t *testing.T, m mode) {
			w := newWorld(t, setup{})
			l, watch := limiter(w.rdb, "silent", append(m.options, core.Timeout(timeout))...)
			back(t, l, "k")
			w.proxy.Silence()
			start := time.Now()
			crowded(t, l, "first", func(res core.Result, err error) { m.during(t, res, err) })
			if n := watch.count(core.EventOutage); n < 1 || n > 4 {
				t.Errorf("%d calls were made, want no more than may be under way", n)
			}
			t.Logf("the crowd waited for %v", time.Since(start))
			w.proxy.Pass()
			back(t, l, "k")
			crowded(t, l, "later", func(res core.Result, err error) {
				if err != nil || !res.Allowed || res.Source != core.SourceRedis || res.Remaining != limit-1 {
					t.Errorf("after the silence: %+v, %v", res, err)
				}
			})
			watch.told(t, 1)
		})
	})
	settled(t, base)
}

// A reply that is lost with many decisions in it may have charged each of them once. None is sent again.
func TestTogetherReplyLost(t *testing.T) {
	t.Parallel()
	for _, heeds := range []bool{false, true} {
		w := newWorld(t, setup{options: func(o *redis.Options) { o.ContextTimeoutEnabled = heeds }})
		l, watch := limiter(w.rdb, "lost", core.FailClosed(), core.Timeout(slack))
		back(t, l, "k")
		before := w.proxy.Count("EVALSHA")
		w.proxy.DropReply("EVALSHA")
		var answered atomic.Int64
		crowded(t, l, "k", func(_ core.Result, err error) {
			if err == nil {
				answered.Add(1)
			}
		})
		sent := w.proxy.Count("EVALSHA") - before
		w.proxy.Pass()
		if n := int64(watch.count(core.EventOutage)); sent > n || answered.Load() > 0 {
			t.Errorf("%d scripts sent for %d calls, of which all failed; %d have an answer", sent, n, answered.Load())
		}
		charged := 0
		for i := range crowd {
			switch n := w.used(t, "lost", fmt.Sprint("k", i)); {
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
func TestTogetherUnknownCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	w.proxy.Silence()
	silent := faultproxy.New(t, w.server.Addr)
	silent.Silence()
	rdb := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: []string{w.proxy.Addr(), silent.Addr()}, DialTimeout: time.Minute, ReadTimeout: time.Minute,
	})
	t.Cleanup(func() { _ = rdb.Close() })
	l, _ := limiter(rdb, "unknown", core.FailOpen(), core.Timeout(timeout))
	for range 3 {
		crowded(t, l, "k", func(res core.Result, err error) {
			if err != nil || res.Source != core.SourceNone {
				t.Errorf("%+v, %v", res, err)
			}
		})
	}
}
