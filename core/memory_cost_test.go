package core_test

import (
	"fmt"
	"testing"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/limits"
)

// TestMemoryAllocates counts the allocations of a decision in memory: none, but for
// the claims to refund, of which 64 share one.
func TestMemoryAllocates(t *testing.T) {
	const most = 100_000 // the most that SlidingWindowLog accepts
	for _, v := range limits.All() {
		name, lim := v.Name, memory(t, v.Limit(core.PerHour(most)))
		for what, n := range map[string]int64{"allowed": 1, "free": 0, "denied": most + 1} {
			for _, key := range []string{"ip:192.0.2.1", "a key of other characters: ü"} {
				allow(t, lim, key, n)
				got := testing.AllocsPerRun(1000, func() { allow(t, lim, key, n) })
				if got != 0 {
					t.Errorf("%s, %s: %v allocations, want none", name, what, got)
				}
			}
		}
		if got := testing.AllocsPerRun(1000, func() { _, _ = lim.Peek(t.Context(), "ip:192.0.2.1") }); got != 0 {
			t.Errorf("%s: %v allocations of a Peek, want none", name, got)
		}
	}
}

// TestMemoryRefundsOnce refunds some of many charges, each twice: claims that share
// an allocation are taken one by one.
func TestMemoryRefundsOnce(t *testing.T) {
	t.Parallel()
	lim := memory(t, core.FixedWindow(core.PerDay(1000)), core.SlidingWindowLog(core.PerDay(1000)))
	var results []core.Result
	for range 300 {
		results = append(results, allow(t, lim, "a", 2))
	}
	for i, res := range results {
		if i%3 != 0 {
			continue
		}
		for range 2 {
			if err := lim.Refund(t.Context(), res); err != nil {
				t.Fatal(err)
			}
		}
	}
	for res := range allow(t, lim, "a", 0).All() {
		if res.Remaining != 1000-2*200 {
			t.Errorf("%s: %d remain of 1000 after 200 of 300 charges of 2 stayed", res.Name, res.Remaining)
		}
	}
}

// TestMemoryKeepsTheBusy adds new keys to a full Limiter: they evict each other, and
// not the one key of which more is used with each call.
func TestMemoryKeepsTheBusy(t *testing.T) {
	t.Parallel()
	lim := memory(t, core.FixedWindow(core.PerDay(1e6)), core.Entries(100))
	for i := range 1000 {
		allow(t, lim, "busy", 1)
		allow(t, lim, fmt.Sprint("newcomer", i), 1)
	}
	if res := allow(t, lim, "busy", 0); res.Remaining != 1e6-1000 {
		t.Errorf("the busy key was forgotten for newcomers: %+v", res)
	}
}
