package conformance_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/coreaccess"
	"github.com/redislimit/redislimit/internal/inside"
	"github.com/redislimit/redislimit/internal/suite/conformance"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/gate"
	"github.com/redislimit/redislimit/internal/testkit/mini"
	"github.com/redislimit/redislimit/internal/testkit/redisclient"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

// TestTogether makes limiters of one server decide together by one script, over an ordinary go-redis client.
func TestTogether(t *testing.T) {
	t.Run("Redis", func(t *testing.T) {
		t.Parallel()
		server := redistest.Server(t)
		direct := server.Client(t)
		together(t, conformance.Runs(t), func(t *testing.T, run func(*testing.T, conformance.Store)) {
			check.Need(t, direct.FlushAll(t.Context()).Err())
			client := server.Client(t)
			driven := conformance.NewDriven(client)
			run(t, counted(client, conformance.Store{Advance: driven.Advance, Clock: driven.Now, Redis: direct}, driven))
		})
	})
	t.Run("Miniredis", func(t *testing.T) {
		together(t, conformance.Runs(t)/4+1, func(t *testing.T, run func(*testing.T, conformance.Store)) {
			addr, now, advance := mini.Driven(t)
			direct, client := redisclient.New(t, &redis.Options{Addr: addr}), redisclient.New(t, &redis.Options{Addr: addr})
			defer func() { _, _ = direct.Close(), client.Close() }()
			run(t, counted(client, conformance.Store{Advance: advance, Clock: now, ForgetsByClock: true, Redis: direct}))
		})
	})
}

func together(t *testing.T, runs int, open conformance.Opener) {
	t.Helper()
	t.Run("Properties", func(t *testing.T) { conformance.Together(t, open, runs) })
	for name, run := range map[string]func(*testing.T, conformance.Store){
		"Most": conformance.TogetherMost, "Numbers": conformance.TogetherNumbers, "Batches": conformance.TogetherBatches,
	} {
		t.Run(name, func(t *testing.T) { open(t, run) })
	}
}

// counted returns s with Limiters over client. The commands of the client are counted before they reach the hooks.
func counted(client *redis.Client, s conformance.Store, hooks ...redis.Hook) conformance.Store {
	s.Commands = gate.Count(client)
	for _, h := range hooks {
		client.AddHook(h)
	}
	s.New = func(name string, opts ...core.Option) (*core.Limiter, error) {
		return core.New(client, name, append(append(conformance.OnlyRedis, inside.Core.Simulate(coreaccess.Simulation{Wall: s.Clock})), opts...)...)
	}
	return s
}

// TestTogetherOneKey makes limiters of a Cluster and of a Ring decide together on one key: the key belongs to one server,
// so one script decides. Two keys may belong to two servers.
func TestTogetherOneKey(t *testing.T) {
	ring := redisclient.NewRing(t, &redis.RingOptions{Addrs: map[string]string{"one": redistest.Server(t).Addr, "two": redistest.Server(t).Addr}})
	defer func() { _ = ring.Close() }()
	for name, client := range map[string]redis.UniversalClient{"Cluster": redistest.ClusterClient(t, redistest.Cluster(t)), "Ring": ring} {
		sent := gate.Count(client)
		day := core.MustNew(client, "day", append(conformance.OnlyRedis, core.FixedWindow(core.PerDay(10)))...)
		hour := core.MustNew(client, "hour", append(conformance.OnlyRedis, core.SlidingWindowLog(core.PerHour(100)))...)
		decide := func(cost int64, other string) (core.Result, int64) {
			before := sent()
			res, err := core.AllowAll(t.Context(), 1, day.On("k").Cost(cost), hour.On(other))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			return res, sent() - before
		}
		decide(11, "k") // the first call sends the source of the script
		if res, n := decide(3, "k"); !res.Allowed || n != 1 || res.Remaining != 7 {
			t.Errorf("%s: got %+[3]v by %[2]d commands, want the decision by 1 command", name, n, res)
		}
		if res, n := decide(8, "k"); res.Allowed || n != 1 {
			t.Errorf("%s: got %+[3]v by %[2]d commands, want the decision by 1 command", name, n, res)
		}
		var all sync.WaitGroup
		for i := range int64(64) { // on a Cluster some share a batch
			all.Go(func() {
				k := fmt.Sprint("k", i)
				res, err := core.AllowAll(t.Context(), 1, day.On(k).Cost(1+i%9), hour.On(k).Cost(i+1))
				if each := slices.Collect(res.All()); err != nil || !res.Allowed || each[0].Remaining != 9-i%9 || each[1].Remaining != 99-i {
					t.Errorf("%s, key %s: got %+v, %v; want it allowed with %d and %d remaining", name, k, each, err, 9-i%9, 99-i)
				}
			})
		}
		all.Wait()
		if res, n := decide(4, "other"); !res.Allowed || n < 2 || res.Remaining != 3 {
			t.Errorf("%s, two keys: %d commands, %+v; want at least 2 commands, and 3 remaining", name, n, res)
		}
	}
}
