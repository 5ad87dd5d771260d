package lease

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redislimit/redislimit/internal/limits"
)

const hotFor = 100 * time.Millisecond

// TestHotKeys checks that a key becomes hot with its eighth request within the duration of a lease, and not before.
func TestHotKeys(t *testing.T) {
	set := &limits.Set{}
	for gap, hot := range map[time.Duration]bool{0: true, hotFor / 8: true, hotFor / 6: false, hotFor: false} {
		table := newHotKeys(hotFor)
		var h *HotKey
		requests := 0
		for now := time.Hour; requests < 40 && h == nil; now += gap {
			requests++
			h = table.count(table.set(table.hash("k")), table.hash("k"), "k", set, now)
		}
		if (h != nil) != hot || hot && requests != HotDecisions {
			t.Errorf("requested every %v: after %d requests, hot is %v", gap, requests, h != nil)
		}
		if found := table.set(table.hash("k")).find("k", set); found != h {
			t.Errorf("requested every %v: found %p, want %p", gap, found, h)
		}
		if found := table.set(table.hash("k")).find("k", &limits.Set{}); found != nil {
			t.Error("found for other limits")
		}
	}
}

// TestHotKeysShareCounters checks that a key becomes hot although another key, which is requested less
// often, shares its counter.
func TestHotKeysShareCounters(t *testing.T) {
	table, set := newHotKeys(hotFor), &limits.Set{}
	hash := table.hash("k")
	other := hash ^ 1<<63 // a hash with the same counter and another tag
	for range HotDecisions {
		for range 3 {
			if table.count(table.set(hash), hash, "k", set, time.Hour) != nil {
				return
			}
		}
		if table.count(table.set(other), other, "other", set, time.Hour) != nil {
			t.Fatal("the other key is hot")
		}
	}
	t.Errorf("not hot after %d requests, with %d for the other", 3*HotDecisions, HotDecisions)
}

// TestHotKeysBounded requests more keys than the table has room for. Keys that are hot stay, and keys that are
// idle make room for others.
func TestHotKeysBounded(t *testing.T) {
	table, set := newHotKeys(hotFor), &limits.Set{}
	heat := func(prefix string, keys int, now time.Duration) (hot int) {
		for i := range keys {
			key := fmt.Sprint(prefix, i)
			for range HotDecisions {
				if h := table.count(table.set(table.hash(key)), table.hash(key), key, set, now); h != nil {
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
	for range 2 * HotDecisions {
		if table.count(table.set(table.hash(long)), table.hash(long), long, set, 3*time.Hour) != nil {
			t.Fatal("a long key is kept")
		}
	}
}

// TestCloseWaits calls Close while an exchange is in flight, or while another goroutine closes a lease. Close waits
// for them, because the unspent units must be given back.
func TestCloseWaits(t *testing.T) {
	t.Parallel()
	for _, exchange := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			take := func(context.Context, *limits.Set, string, int64) Grant {
				time.Sleep(time.Second)
				return Grant{}
			}
			ls := New(Config{Duration: hotFor}, take, func([]*Closed) []*Closed { return nil }, Events{Closed: func(int64, int64) { time.Sleep(time.Second) }})
			h := &HotKey{remaining: 1000}
			if exchange {
				h.countDecisions(ls.Now().Mono, ls.d, 10, 10)
				ls.Exchange(t.Context(), h, 1, nil, ls.Now())
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

// TestDropWaits drops the leases of a key while another goroutine closes and settles a lease of the key. Drop waits
// for the settlement, because Reset calls Drop first, and a settlement after the Reset would charge the key.
func TestDropWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		settled := 0
		settle := func([]*Closed) []*Closed { time.Sleep(time.Second); settled++; return nil }
		ls := New(Config{Duration: hotFor}, nil, settle, Events{Closed: func(int64, int64) {}})
		h := ls.hot.add(ls.hot.set(ls.hot.hash("k")), "k", &limits.Set{}, ls.Now().Mono)
		spent := &Lease{hot: h, lasts: ls.d, units: 1}
		h.lease.Store(spent)
		go ls.Exchange(t.Context(), h, 1, spent, ls.Now())
		synctest.Wait()
		if ls.Drop(t.Context(), "k"); settled != 1 {
			t.Errorf("%d leases are settled", settled)
		}
	})
}

// TestSettlingBeforeClosed stops a goroutine that closes a lease right after it has closed it. The settlement must be counted already,
// because Drop finds the lease closed, and waits only for settlements that are counted.
func TestSettlingBeforeClosed(t *testing.T) {
	t.Parallel()
	ls := New(Config{Duration: hotFor}, nil, func([]*Closed) []*Closed { return nil }, Events{Closed: func(int64, int64) {}})
	le := &Lease{hot: &HotKey{}, lasts: ls.d, units: 1}
	ls.mu.Lock()
	closed := make(chan struct{})
	go func() { ls.close([]*Lease{le}, ls.Now()); close(closed) }()
	for le.open() {
		time.Sleep(time.Millisecond)
	}
	if n := le.hot.settling.Load(); n != 1 {
		t.Errorf("a lease is closed, and %d settlements are counted, want 1", n)
	}
	ls.mu.Unlock()
	<-closed
}

// TestDropInObserver drops the leases of a key in the observer of a closed lease, and with a context that ends while a
// lease is being settled. Drop must not wait for its own goroutine, nor longer than its context lasts.
func TestDropInObserver(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(ls *Leases, le *Lease){
		"close":    func(ls *Leases, le *Lease) { ls.close([]*Lease{le}, ls.Now()) },
		"exchange": func(ls *Leases, le *Lease) { ls.Exchange(context.Background(), le.hot, 1, le, ls.Now()) },
	} {
		for _, units := range []int64{0, 1} {
			synctest.Test(t, func(t *testing.T) {
				var ls *Leases
				began, dropped := time.Now(), time.Duration(-1)
				settle := func([]*Closed) []*Closed {
					ctx, cancel := context.WithTimeout(context.Background(), time.Second)
					defer cancel()
					ls.Drop(ctx, "k")
					return nil
				}
				ls = New(Config{Duration: hotFor}, nil, settle, Events{Closed: func(int64, int64) {
					ls.Drop(context.Background(), "k")
					dropped = time.Since(began)
				}})
				h := ls.hot.add(ls.hot.set(ls.hot.hash("k")), "k", &limits.Set{}, ls.Now().Mono)
				le := &Lease{hot: h, lasts: ls.d, units: units}
				h.lease.Store(le)
				end(ls, le)
				if want := time.Duration(units) * time.Second; dropped < want || dropped > want+10*time.Millisecond {
					t.Errorf("%s, %d units: the leases were dropped after %v, want %v", name, units, dropped, want)
				}
			})
		}
	}
}

// TestIdle checks that no other key takes the place of a key that has a lease, or whose lease is being settled,
// because Drop would not find the key then.
func TestIdle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		settle := func([]*Closed) []*Closed { time.Sleep(3 * hotFor); return nil }
		ls := New(Config{Duration: hotFor}, nil, settle, Events{Closed: func(int64, int64) {}})
		h := &HotKey{last: ls.Now().Mono}
		time.Sleep(hotFor + 1)
		le := &Lease{hot: h, lasts: hotFor, units: 1, sent: ls.Now(), granted: ls.Now()}
		h.lease.Store(le)
		ls.add(le)
		for ; ls.Open() > 0 || h.settling.Load() > 0; time.Sleep(hotFor / 16) {
			if h.idle(ls.Now().Mono, ls.d) {
				t.Fatalf("idle with %d open leases, while %d are being settled", ls.Open(), h.settling.Load())
			}
		}
		if !h.idle(ls.Now().Mono, ls.d) {
			t.Error("a key without leases is never idle")
		}
	})
}

// TestExchange exchanges leases. If a next lease is taken, requests wait for it, but not for the settlement of the
// last one. If the next lease would be too small for the request, or if none is taken, all requests wait until the
// unspent units of the last lease are free.
func TestExchange(t *testing.T) {
	t.Parallel()
	const takes, settles = time.Second, time.Minute
	for _, c := range []struct {
		n, left, remaining, waits int64
		lasts                     time.Duration
	}{
		{1, 1, 1000, 11, takes},
		{1, 0, 1000, 12, takes},
		{12, 1, 1000, maxLeased, settles},
		{1, 1, 0, maxLeased, settles},
		{1, 0, 0, 0, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			begun, settled := time.Now(), 0
			take := func(context.Context, *limits.Set, string, int64) Grant { time.Sleep(takes); return Grant{} }
			settle := func([]*Closed) []*Closed { time.Sleep(settles); settled++; return nil }
			ls := New(Config{Duration: hotFor}, take, settle, Events{Closed: func(int64, int64) {}})
			h := &HotKey{remaining: c.remaining}
			h.countDecisions(ls.Now().Mono, ls.d, 10, 10)
			last := &Lease{hot: h, lasts: ls.d, units: 2}
			last.state.Store(uint64(c.left))
			h.lease.Store(last)
			ls.Exchange(t.Context(), h, c.n, last, ls.Now())
			if ls.Awaited(h, c.waits+1) != nil {
				t.Errorf("%+v: a request waits for units that other requests have claimed", c)
			}
			if ended := ls.Awaited(h, max(1, c.waits)); ended != nil {
				<-ended
			}
			if waited := time.Since(begun); waited != c.lasts {
				t.Errorf("%+v: waited for %v", c, waited)
			}
			if ls.Close(); settled != 1 || time.Since(begun) < settles {
				t.Errorf("%+v: settled %d leases in %v", c, settled, time.Since(begun))
			}
		})
	}
}

// TestExchangeEnds ends the goroutine that takes a lease, as a hook of the client may do. Afterwards nobody waits
// for that lease any more.
func TestExchangeEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		taken := 0
		take := func(context.Context, *limits.Set, string, int64) Grant {
			time.Sleep(time.Second)
			taken++
			runtime.Goexit()
			return Grant{}
		}
		ls, h := New(Config{Duration: hotFor}, take, nil, Events{}), &HotKey{remaining: 1000}
		for i := range 2 {
			h.countDecisions(ls.Now().Mono, ls.d, 10, 10)
			ls.Exchange(t.Context(), h, 1, nil, ls.Now())
			if ended := ls.Awaited(h, 1); ended == nil {
				t.Error("nothing to wait for")
			} else if <-ended; taken != i+1 {
				t.Errorf("%d were begun", taken)
			}
		}
		ls.Close()
	})
}

// TestClosedInTime lets a lease end while Redis is slow to settle another one. The lease is closed in time all the
// same.
func TestClosedInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ls := New(Config{Duration: hotFor}, nil, func([]*Closed) []*Closed { time.Sleep(time.Second); return nil }, Events{Closed: func(int64, int64) {}})
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
