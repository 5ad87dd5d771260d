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
	perMode       = 16   // callers: 64 in all
	failoverTo    = 1000 // per hour: reached after the switch, not before it
	beforeSwitch  = 50   // admitted by then
	failoverLimit = 90 * time.Second

	slowly  = 20 * time.Millisecond // the pause of a caller during a failover: it must leave the servers some of the machine
	quickly = time.Millisecond      // and once the new master is to reach its limit
)

// failoverTimeouts are the Timeouts of the Limiters in each round.
var failoverTimeouts = timeouts[2:]

// under loads rdb in every mode while change happens, and checks what the calls returned. A replica may lack what the
// master charged last: Redis replicates after it has answered.
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
	t.Logf("switched after %v", time.Since(start))
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
		awaitRedis(t, l.limiter, key) // a breaker that opened during the last calls closes
		l.check(t, failoverTo)
		if on, off := l.watch.count(core.EventFallbackOn), l.watch.count(core.EventFallbackOff); on != off || on < 1 {
			t.Errorf("%s: the fallback went on %d times and off %d times", l.name, on, off)
		}
	}
}

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
			t.Error("no keys")
		}
	})
}

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
			t.Error("no keys")
		}
	})
}
