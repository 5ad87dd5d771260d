package conformance

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/limits"
)

// TestKeyInUseIsKept charges one key in memory again and again while new keys arrive. Its results must be the same as
// without other keys, both in a memory that has room and in one that is full of keys that are hardly used. A key of which
// units are held for long must be kept, too. The test would notice a memory that forgets a key at the time at which its
// first charge would have been paid back, regardless of later charges.
func TestKeyInUseIsKept(t *testing.T) {
	t.Parallel()
	for _, v := range limits.All() {
		for _, entries := range []int{8, 1000} {
			t.Run(fmt.Sprintf("%s/Entries=%d", v.Name, entries), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { keepInUse(t, v, entries) })
			})
		}
	}
}

func keepInUse(t *testing.T, v limits.Variant, entries int) {
	open := func(entries int) *core.Limiter {
		t.Helper()
		lim, err := core.NewMemory("memory", v.Limit(tenPerTen), core.MaxKeys(entries), limits.Hold(10*time.Minute, v.Limit(tenPerTen)))
		check.Need(t, err)
		return lim
	}
	crowded, alone := open(entries), open(1000)
	reserve(t, crowded, "held", 4)
	const step = 2 * time.Second
	for i := range 30 {
		for _, n := range []int64{1, 6} { // the very first charge is a small one
			got, want := allowN(t, crowded, "k", n), allowN(t, alone, "k", n)
			if got.Allowed != want.Allowed || got.Remaining != want.Remaining || got.ResetAfter != want.ResetAfter {
				t.Fatalf("after %v, a charge of %d: got %+v, want %+v as without other keys", time.Duration(i)*step, n, got, want)
			}
		}
		for j := range 3 {
			if !allowN(t, crowded, fmt.Sprint("newcomer", i, j), 1).Allowed {
				t.Error("the first call on a new key was denied, want it allowed")
			}
		}
		time.Sleep(step)
	}
	if !v.Kind.Delays { // a queue has no holds
		remains(t, crowded, "held", 6)
	}
}
