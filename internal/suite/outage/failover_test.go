package outage

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

const (
	perMode      = 16   // callers: 64 in all
	failoverTo   = 3000 // per hour: reached after the switch, not before it
	beforeSwitch = 300 * time.Millisecond
)

// under loads rdb in every mode while change happens, and reports what the callers were told. A replica may lack what
// the master charged last: Redis replicates after it has answered.
func under(t *testing.T, rdb core.Client, key string, change, then func()) {
	t.Helper()
	end := make(chan struct{})
	var callers sync.WaitGroup
	var loads []*load
	for i, m := range modes() {
		l := newLoad(m, rdb, fmt.Sprint("failover", i), failoverTo, timeout, key)
		loads = append(loads, l)
		l.run(t, &callers, perMode, 2*time.Millisecond, end)
	}
	time.Sleep(beforeSwitch)
	start := time.Now()
	change()
	t.Logf("switched after %v", time.Since(start))
	then()
	for _, l := range loads {
		back(t, l.limiter, key)
	}
	t.Logf("back on Redis after %v", time.Since(start))
	for _, l := range loads { // the limit holds on the new master
		eventually(t, "the limit is reached", 10*time.Second, func() bool {
			res, err := l.limiter.Peek(t.Context(), key)
			return err == nil && res.Source == core.SourceRedis && !res.Allowed
		})
	}
	close(end)
	callers.Wait()
	for _, l := range loads {
		l.check(t, failoverTo)
		if on, off := l.watch.count(core.EventFallbackOn), l.watch.count(core.EventFallbackOff); on != off || on < 1 {
			t.Errorf("%s: the fallback went on %d times and off %d times", l.name, on, off)
		}
	}
}

func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	g := redistest.Sentinel(t)
	rdb := g.Client(t)
	master := g.Master()
	under(t, rdb, "owner", func() {
		master.Stop()
		eventually(t, "another master", 20*time.Second, func() bool { return g.Master() != master })
	}, func() {})
	if expiring(t, g.Master().Client(t)) == 0 {
		t.Error("no keys")
	}
}

func TestClusterFailover(t *testing.T) {
	t.Parallel()
	c := redistest.ClusterWithReplicas(t)
	rdb := c.Client(t)
	key := "rl:failover:{owner}:fixed-1h"
	owner := c.Owner(key)
	under(t, rdb, "owner", func() {
		owner.Stop()
		eventually(t, "another owner", 20*time.Second, func() bool { return c.Owner(key) != owner })
	}, func() {
		owner.Start(t) // as its supervisor would: it says MOVED, without which go-redis may miss the switch for a minute
	})
	if expiring(t, c.Owner(key).Client(t)) == 0 {
		t.Error("no keys")
	}
}
