package outage

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
)

// TestBusyProcess checks that a process whose processors are all busy notices that Redis is away, though later than an idle
// process: it does not trust a timeout that it may have noticed late, but only for a limited time. Nor does it mistake a
// Redis that answers for one that is away.
func TestBusyProcess(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	const loops, healthy = 8, time.Second
	const callers = 8
	e := newEnv(t, setup{})
	l, watch := watched(e.server.Client(t), "busy", core.FixedWindow(core.PerHour(1e9)), core.FailOpen(), core.DenyCache(0))
	awaitRedis(t, l, "k")
	end := make(chan struct{})
	var burning sync.WaitGroup
	for range loops {
		burning.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-end:
					return
				default:
				}
			}
		})
	}
	defer burning.Wait()
	defer close(end)
	// call makes calls until the condition holds, and returns how many it made and how many of them were slow.
	call := func(until func() bool) (calls, slow int64) {
		var all, late atomic.Int64
		check.Together(callers, func(int) {
			for ; !until(); time.Sleep(20 * time.Millisecond) {
				begun := time.Now()
				if _, err := l.Allow(t.Context(), "k"); err != nil {
					t.Error(err)
				}
				all.Add(1)
				if time.Since(begun) > 250*time.Millisecond {
					late.Add(1)
				}
			}
		})
		return all.Load(), late.Load()
	}
	start := time.Now()
	calls, _ := call(func() bool { return time.Since(start) > healthy })
	t.Logf("while Redis answered: %d calls, %d failed", calls, watch.count(core.EventOutage))
	watch.wantOutages(t, 0)
	e.server.Pause()
	defer e.server.Resume()
	start = time.Now()
	calls, slow := call(func() bool { return watch.count(core.EventFallbackOn) > 0 || time.Since(start) > check.Patience })
	t.Logf("the process knew after %v that Redis was away; %d of %d calls were slow until then", time.Since(start), slow, calls)
	if on := watch.count(core.EventFallbackOn); on != 1 {
		t.Errorf("the fallback went on %d times, want 1", on)
	}
}
