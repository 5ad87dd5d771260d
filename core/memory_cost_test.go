package core_test

import (
	"fmt"
	"testing"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/limits"
)

// TestMemoryAllocates counts the allocations of a decision in memory: none.
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
