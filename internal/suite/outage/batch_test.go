package outage

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/faultproxy"
)

// crowd is how many callers call at once: far more than calls may be in flight before others wait for a batch.
const crowd = 300

// inFlight is how many calls may be in flight before others wait for a batch.
const inFlight = 4

// crowded makes crowd calls at once, each on a key of its own, and checks that none takes longer than the timeout, however
// many calls are ahead of it.
func crowded(tb testing.TB, l *core.Limiter, timeout time.Duration, prefix string, answered func(core.Result, error)) {
	tb.Helper()
	check.Together(crowd, func(i int) {
		timed(tb, timeout, func() {
			res, err := l.Allow(tb.Context(), fmt.Sprint(prefix, i))
			answered(res, err)
		})
	})
}

// TestBatchUnknownCluster checks that a decision takes no longer than the timeout if a Cluster is silent from the start,
// although its nodes are not known yet.
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
				t.Errorf("got %+v, %v; want it admitted without a decision", res, err)
			}
		})
	}
}
