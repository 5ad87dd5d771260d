package core_test

import (
	"testing"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/limits"
)

// TestMemoryAllocates counts the allocations of a decision in memory: none.
func TestMemoryAllocates(t *testing.T) {
	const most = 100_000 // the most that SlidingWindowLog accepts
	for _, v := range limits.All() {
		name, lim := v.Name, core.MustNewMemory("test", v.Limit(core.PerHour(most)))
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
