package outage

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

// One node of a Cluster is away, and nothing takes its place: the keys of the others are decided by Redis, in every outage
// policy, and the log has one line when it went and one when it was back.
func TestOneNodeIsAway(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]func(testing.TB, *redistest.Instance) (back func()){
		"paused": func(_ testing.TB, node *redistest.Instance) func() {
			node.Pause()
			return node.Resume
		},
		"killed": func(tb testing.TB, node *redistest.Instance) func() {
			node.Stop()
			return func() { node.Start(tb) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := redistest.ClusterWithReplicas(t, "--cluster-node-timeout", "60000") // no election during the test
			check.Rounds(t, timeouts[1:], func(t *check.Round, timeout time.Duration) { nodeAway(t, c, timeout, away) })
		})
	}
}

// nodeRun is one mode over a Cluster of which a node is away.
type nodeRun struct {
	mode

	limiter          *core.Limiter
	watch            *watcher
	calls, byRedis   atomic.Int64 // on keys of the other nodes
	affected, faulty atomic.Int64 // on keys of the node, and those that Redis decided
}

func nodeAway(t *check.Round, c *redistest.ReplicatedCluster, timeout time.Duration, away func(testing.TB, *redistest.Instance) func()) {
	const lasts = 4 * time.Second
	keys, owners := make([]string, 60), map[string]*redistest.Instance{}
	for i := range keys {
		keys[i] = fmt.Sprint("k", i)
		owners[keys[i]] = c.Owner("{" + keys[i] + "}")
	}
	node := owners[keys[0]]
	var runs []*nodeRun
	for i, m := range modes() {
		run := &nodeRun{mode: m}
		run.limiter, run.watch = watched(c.Client(t), fmt.Sprint("nodes", i),
			append(m.options, core.FixedWindow(core.PerHour(1e9)), core.Timeout(timeout))...)
		for _, key := range keys {
			awaitRedis(t, run.limiter, key)
		}
		runs = append(runs, run)
	}
	back := away(t, node)
	end := time.Now().Add(lasts)
	var running sync.WaitGroup
	for _, run := range runs {
		for i := range 32 {
			running.Go(func() {
				for n := i; time.Now().Before(end); n++ {
					run.call(t, keys[n%len(keys)], owners[keys[n%len(keys)]] == node)
					time.Sleep(20 * time.Millisecond)
				}
			})
		}
	}
	running.Wait()
	back()
	for _, run := range runs {
		for _, key := range keys {
			awaitRedis(t, run.limiter, key)
		}
		run.watch.wantOutages(t, 1)
		share := float64(run.byRedis.Load()) / float64(run.calls.Load())
		t.Logf("%s: Redis decided %.2f %% of %d on keys of the other nodes, %d of %d on keys of the node that was away",
			run.name, 100*share, run.calls.Load(), run.faulty.Load(), run.affected.Load())
		if share < 0.99 {
			t.Errorf("%s: Redis decided %.2f %% on keys of healthy nodes, want 99 %%", run.name, 100*share)
		}
		if run.faulty.Load() > 0 {
			t.Errorf("%s: a node that is away decided %d times", run.name, run.faulty.Load())
		}
	}
}

func (r *nodeRun) call(t *check.Round, key string, isAway bool) {
	res, err := r.limiter.Allow(t.Context(), key)
	calls, byRedis := &r.calls, &r.byRedis
	if isAway {
		calls, byRedis = &r.affected, &r.faulty
	}
	calls.Add(1)
	if err == nil && res.Source == core.SourceRedis {
		byRedis.Add(1)
	} else {
		r.during(t, res, err)
	}
}
