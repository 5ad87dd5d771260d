package core_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
)

// TestWithRefusesWrongLimits checks the errors of With.
func TestWithRefusesWrongLimits(t *testing.T) {
	lim := core.MustNewMemory("api", core.TokenBucket(core.PerMinute(10)), core.Lease(time.Second))
	for want, limits := range map[string][]core.Limit{
		"no limit given":    nil,
		"-1/1m":             {core.TokenBucket(core.PerMinute(-1))},
		"0/0d":              {core.Unlimited(), core.TokenBucket(core.Rate{})},
		"13 limits":         slices.Repeat([]core.Limit{core.Unlimited()}, 13),
		"places in a queue": {core.LeakyBucket(core.PerMinute(10))},
		"both called":       {core.GCRA(core.PerMinute(10)), core.GCRA(core.PerMinute(20))},
	} {
		got, err := lim.With(limits...)
		if err == nil || got != nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `limiter "api": With`) {
			t.Errorf("%v: got error %v, want one that contains %q", limits, err, want)
		}
	}
}

// TestWithAllocates calls With with limits that were given before, as a service does for each request: the call must return the
// same Limiter, and make no allocation.
func TestWithAllocates(t *testing.T) {
	lim := core.MustNewMemory("api", core.TokenBucket(core.PerMinute(10)), core.FixedWindow(core.PerDay(1000)))
	one, two := core.TokenBucket(core.PerMinute(20)), core.FixedWindow(core.PerDay(2000))
	first, err := lim.With(one, two)
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() {
		again, err := lim.With(one, two)
		if err != nil || again != first {
			t.Fatalf("With returned another Limiter for the same limits, error %v", err)
		}
	}); n != 0 {
		t.Errorf("With makes %v allocations, want none", n)
	}
}

// TestWithMemory checks that 10,000 different limits take at most 20 MiB of memory.
func TestWithMemory(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer func() { _ = client.Close() }()
	lim := core.MustNew(client, "api", core.TokenBucket(core.PerMinute(10)))
	defer func() { _ = lim.Close() }()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range int64(10_000) {
		if _, err := lim.With(core.TokenBucket(core.PerMinute(100 + i))); err != nil {
			t.Fatal(err)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if used := int64(after.HeapAlloc) - int64(before.HeapAlloc); used > 20<<20 {
		t.Errorf("10,000 limits take %d bytes, want at most 20 MiB", used)
	} else {
		t.Logf("%d bytes for each limit", used/10_000)
	}
	runtime.KeepAlive(lim)
}

// TestWithFallback checks that the limits given to With also apply while Redis is down.
func TestWithFallback(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	defer func() { _ = client.Close() }()
	lim := core.MustNew(client, "api", core.FixedWindow(core.PerHour(5)), core.Processes(2), core.Timeout(50*time.Millisecond))
	defer func() { _ = lim.Close() }()
	big, err := lim.With(core.FixedWindow(core.PerHour(20)))
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range []*core.Limiter{big, lim, big} {
		res, err := l.Allow(t.Context(), "k")
		if want := []int64{9, 0, 7}[i]; err != nil || res.Source != core.SourceFallback || res.Remaining != want {
			t.Errorf("decision %d: got %+v, %v; want %d left", i, res, err, want)
		}
	}
	res, err := big.Reserve(t.Context(), "k", 3)
	if err != nil || !res.Allowed || res.Remaining != 4 {
		t.Errorf("Reserve: got %+v, %v; want 4 left", res, err)
	}
	if err := res.Settle(context.Background(), 1); err != nil {
		t.Errorf("Settle: got error %v, want none", err)
	}
	if res, err := big.Peek(t.Context(), "k"); err != nil || res.Remaining != 6 {
		t.Errorf("Peek: got %+v, %v; want 6 left", res, err)
	}
}

// TestWithAtOnce calls With with many limits in many goroutines, and checks that each Limiter has the limit that was given.
func TestWithAtOnce(t *testing.T) {
	lim := core.MustNewMemory("api", core.TokenBucket(core.PerMinute(10)))
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := range int64(200) {
				l, err := lim.With(core.TokenBucket(core.PerMinute(i%50+1), core.Burst(i%50+1)))
				if err != nil {
					t.Errorf("With: got error %v, want none", err)
					return
				}
				if res, err := l.Peek(context.Background(), fmt.Sprint(g, i)); err != nil || res.Limit != i%50+1 {
					t.Errorf("Peek: got %+v, %v; want the limit %d", res, err, i%50+1)
				}
			}
		})
	}
	all.Wait()
}
