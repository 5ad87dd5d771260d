package outage

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

const (
	perMode       = 16   // callers of each mode: 64 in all
	failoverTo    = 1000 // the limit per hour: reached after the failover, not before it
	beforeSwitch  = 50   // how many calls are admitted before the failover
	failoverLimit = 90 * time.Second

	slowly  = 20 * time.Millisecond // the pause between the calls of a caller during the failover: the servers need a part of the machine, too
	quickly = time.Millisecond      // the pause once the new master has to reach its limit
)

// failoverTimeouts are the Timeouts of the Limiters in each round.
var failoverTimeouts = timeouts[2:]

// under makes calls over rdb in every mode while change happens, and checks what the calls returned. The new master may
// lack the latest charges of the old one, because Redis replicates after it has answered.
func under(t *check.Round, rdb core.Client, key string, timeout time.Duration, change func()) {
	end := make(chan struct{})
	var callers sync.WaitGroup
	stop := sync.OnceFunc(func() {
		close(end)
		callers.Wait()
	})
	t.Cleanup(stop)
	var loads []*load
	for i, m := range modes() {
		l := newLoad(m, rdb, fmt.Sprint("failover", i), failoverTo, timeout, key)
		loads = append(loads, l)
		l.run(t, &callers, perMode, slowly, end)
	}
	for _, l := range loads {
		check.Eventually(t, l.name+": some calls are admitted by the first master", func() bool {
			all, _ := l.sum(core.SourceRedis)
			return all >= beforeSwitch
		})
	}
	start := time.Now()
	change()
	t.Logf("another master after %v", time.Since(start))
	for _, l := range loads {
		awaitRedis(t, l.limiter, key)
	}
	t.Logf("back on Redis after %v", time.Since(start))
	for _, l := range loads { // the limit holds on the new master
		l.pause.Store(int64(quickly))
		check.Eventually(t, l.name+": the limit is reached", func() bool {
			res, err := l.limiter.Peek(t.Context(), key)
			return err == nil && res.Source == core.SourceRedis && !res.Allowed
		})
		l.pause.Store(int64(slowly))
	}
	stop()
	for _, l := range loads {
		awaitRedis(t, l.limiter, key) // waits until a breaker that opened during the last calls has closed
		l.check(t, failoverTo)
		if on, off := l.watch.count(core.EventFallbackOn), l.watch.count(core.EventFallbackOff); on != off || on < 1 {
			t.Errorf("%s: the fallback went on %d times and off %d times, want the same number of times, at least 1", l.name, on, off)
		}
	}
}

// TestSentinelFailover stops the master of a Sentinel group under load.
func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	check.Rounds(t, failoverTimeouts, func(t *check.Round, timeout time.Duration) {
		g := redistest.Sentinel(t)
		rdb := g.Client(t)
		master := g.Master()
		under(t, rdb, "owner", timeout, func() {
			master.Stop()
			check.Within(t, failoverLimit, "another master", func() bool { return g.Master() != master })
		})
		if expiring(t, g.Master().Client(t)) == 0 {
			t.Error("the new master has no keys, want some")
		}
	})
}

// TestClusterFailover stops a master of a Cluster under load.
func TestClusterFailover(t *testing.T) {
	t.Parallel()
	check.Rounds(t, failoverTimeouts, func(t *check.Round, timeout time.Duration) {
		c := redistest.ClusterWithReplicas(t)
		rdb := c.Client(t)
		key := "rl:failover:{owner}:fixed-1h"
		owner := c.Owner(key)
		under(t, rdb, "owner", timeout, func() {
			owner.Stop()
			check.Within(t, failoverLimit, "another owner", func() bool { return c.Owner(key) != owner })
		})
		if expiring(t, c.Owner(key).Client(t)) == 0 {
			t.Error("the new master has no keys, want some")
		}
	})
}
