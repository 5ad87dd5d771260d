package lease

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/limits"
)

const hotFor = 100 * time.Millisecond

// TestHotKeys has a key become hot when it is asked for eight times within d, and not before.
func TestHotKeys(t *testing.T) {
	by := &limits.Set{}
	for gap, hot := range map[time.Duration]bool{0: true, hotFor / 8: true, hotFor / 6: false, hotFor: false} {
		table := newHotKeys(hotFor)
		var h *HotKey
		asks := 0
		for now := time.Hour; asks < 40 && h == nil; now += gap {
			asks++
			h = table.count(table.set(table.hash("k")), table.hash("k"), "k", by, now)
		}
		if (h != nil) != hot || hot && asks != HotAsks {
			t.Errorf("asked every %v: hot after %d requests: %v", gap, asks, h != nil)
		}
		if found := table.set(table.hash("k")).find("k", by); found != h {
			t.Errorf("asked every %v: found %p, want %p", gap, found, h)
		}
		if found := table.set(table.hash("k")).find("k", &limits.Set{}); found != nil {
			t.Error("found by other limits")
		}
	}
}

// TestHotKeysBounded has more keys asked for than the table holds: those that are hot stay, and
// idle ones make room.
func TestHotKeysBounded(t *testing.T) {
	table, by := newHotKeys(hotFor), &limits.Set{}
	heat := func(prefix string, keys int, now time.Duration) (hot int) {
		for i := range keys {
			key := fmt.Sprint(prefix, i)
			for range HotAsks {
				if h := table.count(table.set(table.hash(key)), table.hash(key), key, by, now); h != nil {
					hot++
					break
				}
			}
		}
		return hot
	}
	const most = hotSets * hotWays
	first := heat("first", 4*most, time.Hour)
	if first > most || first < most*3/4 {
		t.Errorf("%d keys are hot, of %d that there is room for", first, most)
	}
	if more := heat("second", 4*most, time.Hour); first+more > most {
		t.Errorf("%d more keys are hot, beside %d", more, first)
	}
	if later := heat("third", 4*most, time.Hour+2*hotFor); later < most*3/4 {
		t.Errorf("%d keys are hot after the others were idle", later)
	}
	long := string(make([]byte, maxHotKey+1))
	for range 2 * HotAsks {
		if table.count(table.set(table.hash(long)), table.hash(long), long, by, 3*time.Hour) != nil {
			t.Fatal("a long key is kept")
		}
	}
}

// TestCloseWaits closes Leases while an exchange is in flight, and while another goroutine closes a
// lease: Close waits for both, for what they have is to be given back.
func TestCloseWaits(t *testing.T) {
	t.Parallel()
	for _, exchange := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			take := func(context.Context, *limits.Set, string, int64) ([]algorithm.Answer, []algorithm.Handle, int64) {
				time.Sleep(time.Second)
				return nil, nil, 0
			}
			ls := New(hotFor, take, func([]*Closed) []*Closed { return nil }, Events{Closed: func(int64, int64) { time.Sleep(time.Second) }})
			h := &HotKey{remaining: 1000}
			if exchange {
				h.asked(ls.Now().Mono, ls.d, 10, 10)
				ls.Exchange(t.Context(), h, nil, ls.Now())
			} else {
				le := &Lease{hot: h, lasts: ls.d, units: 1}
				ls.open[le] = struct{}{}
				go ls.close([]*Lease{le}, ls.Now())
			}
			synctest.Wait()
			if ls.Close(); time.Since(begun) < time.Second {
				t.Errorf("an exchange: %v; Close took %v", exchange, time.Since(begun))
			}
		})
	}
}

// TestClosedInTime has a lease end while Redis is slow to settle another: it is closed in time.
func TestClosedInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ls := New(hotFor, nil, func([]*Closed) []*Closed { time.Sleep(time.Second); return nil }, Events{Closed: func(int64, int64) {}})
		for range 2 {
			ls.add(&Lease{hot: &HotKey{}, lasts: hotFor, units: 1, sent: ls.Now(), granted: ls.Now()})
			time.Sleep(hotFor / 2)
		}
		time.Sleep(hotFor / 2)
		if n := ls.Open(); n != 0 {
			t.Errorf("%d leases are open", n)
		}
		ls.Close()
	})
}
