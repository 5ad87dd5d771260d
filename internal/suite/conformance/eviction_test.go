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

// TestKeyInUseIsKept charges one key in memory again and again, while others come: it stands as it does where there are
// no others, whether the memory has room or is full of keys that are hardly used. So does one of which units are held
// for long. It would notice a memory that forgets a key when its first charge would have been paid back, whatever was
// charged to it since.
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
		for _, n := range []int64{1, 6} { // the first charge of all is a small one
			got, want := allowN(t, crowded, "k", n), allowN(t, alone, "k", n)
			if got.Allowed != want.Allowed || got.Remaining != want.Remaining || got.ResetAfter != want.ResetAfter {
				t.Fatalf("after %v, a charge of %d: %+v, want %+v", time.Duration(i)*step, n, got, want)
			}
		}
		for j := range 3 {
			if !allowN(t, crowded, fmt.Sprint("newcomer", i, j), 1).Allowed {
				t.Error("a newcomer was denied")
			}
		}
		time.Sleep(step)
	}
	if !v.Kind.Delays { // places in a queue are not held
		remains(t, crowded, "held", 6)
	}
}
