package outage

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

// The tests of this file make one of several servers unavailable without a replacement. Redis must still decide on the keys of
// the other servers, under every outage policy, with one caller and with many. The log has one line when the server fails and
// one when it is back.

// servers are the servers over which a client distributes the keys.
type servers struct {
	client func(testing.TB) core.Client
	owner  func(key string) *redistest.Instance
	// takenOver says that after a while the client itself moves the keys of a server that is away to the others.
	takenOver bool
}

// TestOneNodeIsAway makes one node of a Cluster unavailable while no replica takes over.
func TestOneNodeIsAway(t *testing.T) {
	t.Parallel()
	eachAbsence(t, []int{1, 64}, func(t *testing.T) servers {
		c := redistest.ClusterWithReplicas(t, "--cluster-node-timeout", "60000") // no election during the test
		return servers{
			client: func(tb testing.TB) core.Client { return c.Client(tb) },
			owner:  func(key string) *redistest.Instance { return c.Owner("{" + key + "}") },
		}
	})
}

// TestOneShardIsAway makes one shard of a Ring unavailable.
func TestOneShardIsAway(t *testing.T) {
	t.Parallel()
	eachAbsence(t, []int{64}, func(t *testing.T) servers { return ringOf(t, 3) })
}

func ringOf(t *testing.T, n int) servers {
	t.Helper()
	addrs, byAddr := map[string]string{}, map[string]*redistest.Instance{}
	for i := range n {
		instance := redistest.Server(t)
		addrs[fmt.Sprint("shard", i)], byAddr[instance.Addr] = instance.Addr, instance
	}
	open := func(tb testing.TB) *redis.Ring {
		tb.Helper()
		ring := redis.NewRing(&redis.RingOptions{Addrs: addrs})
		tb.Cleanup(func() { _ = ring.Close() })
		return ring
	}
	first := open(t)
	return servers{
		client: func(tb testing.TB) core.Client { return open(tb) },
		owner: func(key string) *redistest.Instance {
			shard, err := first.GetShardClientForKey("{" + key + "}")
			check.Need(t, err)
			return byAddr[shard.Options().Addr]
		},
		takenOver: true,
	}
}

// eachAbsence pauses and kills one of the servers while the given numbers of callers decide.
func eachAbsence(t *testing.T, callers []int, all func(*testing.T) servers) {
	t.Helper()
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
			s := all(t)
			for _, callers := range callers {
				t.Run(fmt.Sprint("callers: ", callers), func(t *testing.T) {
					check.Rounds(t, timeouts[1:], func(t *check.Round, timeout time.Duration) { nodeAway(t, s, callers, timeout, away) })
				})
			}
		})
	}
}

// nodeRun is one mode over several servers, one of which is away.
type nodeRun struct {
	mode

	limiter          *core.Limiter
	watch            *watcher
	calls, byRedis   atomic.Int64 // decisions on keys of the other servers
	affected, faulty atomic.Int64 // decisions on keys of the server that is away, and how many of them Redis made
}

func nodeAway(t *check.Round, s servers, callers int, timeout time.Duration, away func(testing.TB, *redistest.Instance) func()) {
	lasts, perSecond := max(2*time.Second, 2*timeout), 800/timeout.Seconds() // the calls per second of each mode: fewer if the machine is slow
	keys, owners := make([]string, 60), map[string]*redistest.Instance{}
	for i := range keys {
		keys[i] = fmt.Sprint("k", i)
		owners[keys[i]] = s.owner(keys[i])
	}
	node := owners[keys[0]]
	var runs []*nodeRun
	for i, m := range modes() {
		run := &nodeRun{mode: m}
		run.limiter, run.watch = watched(s.client(t), fmt.Sprint("nodes", i),
			append(m.options, core.FixedWindow(core.PerHour(1e9)), core.Timeout(timeout))...)
		for _, key := range keys {
			awaitRedis(t, run.limiter, key)
		}
		runs = append(runs, run)
	}
	back := away(t, node)
	var over atomic.Bool
	pause := time.Duration(float64(callers) / perSecond * float64(time.Second))
	var running sync.WaitGroup
	for _, run := range runs {
		for i := range callers {
			running.Go(func() {
				time.Sleep(pause * time.Duration(i) / time.Duration(callers))
				for n := i; !over.Load(); n++ {
					run.call(t, keys[n%len(keys)], owners[keys[n%len(keys)]] == node)
					time.Sleep(pause)
				}
			})
		}
	}
	time.Sleep(lasts)
	for _, run := range runs { // a busy process probes the server for seconds before it reports an outage
		check.Eventually(t, "the outage is reported", func() bool { return run.watch.count(core.EventFallbackOn) > 0 })
	}
	over.Store(true)
	running.Wait()
	back()
	for _, run := range runs {
		for _, key := range keys {
			awaitRedis(t, run.limiter, key)
		}
		check.Eventually(t, "the end is reported", func() bool { // a Ring may not use the server again yet
			_, _ = run.limiter.Peek(t.Context(), keys[0])
			return run.watch.count(core.EventFallbackOff) > 0
		})
		run.watch.wantOutages(t, 1)
		share := float64(run.byRedis.Load()) / float64(run.calls.Load())
		t.Logf("%d callers, %s: Redis made %.2f %% of %d decisions on keys of the other nodes, and %d of %d on keys of the node that was away",
			callers, run.name, 100*share, run.calls.Load(), run.faulty.Load(), run.affected.Load())
		if share < 0.99 {
			t.Errorf("%s: Redis made %.2f %% of the decisions on keys of healthy nodes, want at least 99 %%", run.name, 100*share)
		}
		if run.faulty.Load() > 0 && !s.takenOver {
			t.Errorf("%s: the node that was away made %d decisions, want 0", run.name, run.faulty.Load())
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
