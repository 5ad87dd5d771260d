package core

import (
	"fmt"
	"testing"
	"time"
)

const hotFor = 100 * time.Millisecond

// TestHotKeys has a key become hot when it is asked for eight times within d, and not before.
func TestHotKeys(t *testing.T) {
	limits := &limitSet{}
	for gap, hot := range map[time.Duration]bool{0: true, hotFor / 8: true, hotFor / 6: false, hotFor: false} {
		table := newHotKeys(hotFor, 1)
		var h *hotKey
		asks := 0
		for now := time.Hour; asks < 40 && h == nil; now += gap {
			asks++
			h = table.count(table.hash("k"), "k", limits, now)
		}
		if (h != nil) != hot || hot && asks != hotAsks {
			t.Errorf("asked every %v: hot after %d requests: %v", gap, asks, h != nil)
		}
		if found := table.find(table.hash("k"), "k", limits); found != h {
			t.Errorf("asked every %v: found %p, want %p", gap, found, h)
		}
		if found := table.find(table.hash("k"), "k", &limitSet{}); found != nil {
			t.Error("found by other limits")
		}
	}
}

// TestHotKeysBounded has more keys asked for than the table holds: those that are hot stay, and
// idle ones make room.
func TestHotKeysBounded(t *testing.T) {
	table, limits := newHotKeys(hotFor, 1), &limitSet{}
	heat := func(prefix string, keys int, now time.Duration) (hot int) {
		for i := range keys {
			key := fmt.Sprint(prefix, i)
			for range hotAsks {
				if h := table.count(table.hash(key), key, limits, now); h != nil {
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
	for range 2 * hotAsks {
		if table.count(table.hash(long), long, limits, 3*time.Hour) != nil {
			t.Fatal("a long key is kept")
		}
	}
}

// BenchmarkColdKey is what leases add to a decision on a key that is not hot.
func BenchmarkColdKey(b *testing.B) {
	ls, limits := newLeases(hotFor, 1, nil, nil), &limitSet{}
	keys := make([]string, 1<<16)
	for i := range keys {
		keys[i] = fmt.Sprint("user:", i)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		key := keys[i%len(keys)]
		now, hash := ls.now(), ls.hot.hash(key)
		if ls.hot.find(hash, key, limits) == nil {
			ls.hot.count(hash, key, limits, now.mono)
		}
	}
}
