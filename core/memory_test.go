package core_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/limits"
)

// TestNewMemoryTakesOptionsOfRedis passes the options of a service to NewMemory, as the tests of the service would: options
// about Redis are checked, and have no effect.
func TestNewMemoryTakesOptionsOfRedis(t *testing.T) {
	t.Parallel()
	limit := core.TokenBucket(core.PerMinute(1))
	for _, opts := range [][]core.Option{
		{core.Prefix("app"), core.Timeout(time.Second), core.FailLocal(), core.Processes(2), core.DenyCache(1), core.MaxBatch(1)},
		{core.MaxKeys(5), core.FailOpen(), core.Clock(time.Now), core.Lease(time.Second)},
	} {
		if res := allow(t, core.MustNewMemory("m", limit, core.Options(opts...)), "k", 1); !res.Allowed || res.Source != core.SourceMemory {
			t.Errorf("with the options %v: got %+v for the first request, want it admitted by the memory", opts, res)
		}
	}
	for name, option := range map[string]core.Option{"a b": limit, "m": core.Options(limit, core.Timeout(0))} {
		if lim, err := core.NewMemory(name, option); err == nil || lim != nil {
			t.Errorf("NewMemory(%q) with a mistake: got %v, %v; want an error", name, lim, err)
		}
	}
}

// allow decides on n units of a key, without an error.
func allow(t *testing.T, lim *core.Limiter, key string, n int64) core.Result {
	t.Helper()
	res, err := lim.AllowN(t.Context(), key, n)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// TestMemoryFull fills a Limiter: new keys must still be served. A key that has used up its limit must be evicted last, and a
// key whose units are all available again must be evicted first.
func TestMemoryFull(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, v := range limits.All() {
			name, limit := v.Name, v.Limit(core.PerHour(10))
			lim := core.MustNewMemory("test", limit, core.MaxKeys(100))
			for i := range 10 {
				allow(t, lim, fmt.Sprint("attacker", i), 10)
			}
			for i := range 10_000 {
				if !allow(t, lim, fmt.Sprint("newcomer", i), 1).Allowed {
					t.Fatalf("%s: newcomer %d was denied, want it admitted", name, i)
				}
			}
			for i := range 10 {
				if allow(t, lim, fmt.Sprint("attacker", i), 1).Allowed {
					t.Errorf("%s: attacker %d was admitted, want a denial: its key was evicted for newcomers", name, i)
				}
			}
			time.Sleep(30 * time.Minute)
			for i := range 90 {
				allow(t, lim, fmt.Sprint("half", i), 5)
			}
			time.Sleep(90 * time.Minute) // everything is available again, including the previous window of the counter
			for i := range 100 {
				allow(t, lim, fmt.Sprint("fresh", i), 2)
			}
			for i := range 100 {
				if res := allow(t, lim, fmt.Sprint("fresh", i), 0); res.Remaining != 8 {
					t.Errorf("%s: fresh key %d has %d left, want 8: it was evicted before keys that had refilled", name, i, res.Remaining)
				}
			}
		}
	})
}

// TestMemoryBound uses many keys in many goroutines: the Limiter must not keep more than MaxKeys keys.
func TestMemoryBound(t *testing.T) {
	t.Parallel()
	const entries = 1500
	lim := core.MustNewMemory("test", core.FixedWindow(core.PerDay(10)), core.TokenBucket(core.PerDay(10)), core.MaxKeys(entries))
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 1))
			for range 5_000 {
				key := fmt.Sprint(r.IntN(20_000))
				res, err := lim.Acquire(t.Context(), key, 1+r.Int64N(10))
				if err != nil {
					t.Errorf("Acquire: got error %v, want none", err)
				}
				switch r.IntN(10) {
				case 0:
					err = res.Cancel(t.Context())
				case 1:
					err = lim.Reset(t.Context(), key)
				}
				if err != nil {
					t.Errorf("Cancel or Reset: got error %v, want none", err)
				}
			}
		})
	}
	wg.Wait()
	remembered := 0
	for i := range 20_000 {
		res, err := lim.Peek(t.Context(), fmt.Sprint(i))
		if err != nil {
			t.Fatal(err)
		}
		if res.Remaining < 10 {
			remembered++
		}
	}
	if remembered > entries || remembered < entries/2 {
		t.Errorf("the Limiter remembers %d keys, want at most %d, and at least half as many", remembered, entries)
	}
}

// TestMemoryAllocates checks that a decision in memory makes no allocation.
func TestMemoryAllocates(t *testing.T) {
	const most = 100_000 // the largest count that SlidingWindowLog accepts
	for _, v := range limits.All() {
		name, lim := v.Name, core.MustNewMemory("test", v.Limit(core.PerHour(most)))
		for what, n := range map[string]int64{"allowed": 1, "free": 0, "denied": most + 1} {
			for _, key := range []string{"ip:192.0.2.1", "a key of other characters: ü"} {
				allow(t, lim, key, n)
				got := testing.AllocsPerRun(1000, func() { allow(t, lim, key, n) })
				if got != 0 {
					t.Errorf("%s, %s: a decision makes %v allocations, want none", name, what, got)
				}
			}
		}
		if got := testing.AllocsPerRun(1000, func() { _, _ = lim.Peek(t.Context(), "ip:192.0.2.1") }); got != 0 {
			t.Errorf("%s: a Peek makes %v allocations, want none", name, got)
		}
	}
}
