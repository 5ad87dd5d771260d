package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/inside"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/limits"
)

// inFlightCases take slots and give them back.
func inFlightCases() []testCase {
	return []testCase{
		{"InFlight/Random", slotsAtRandom},
		{"InFlight/Ends", slotEnds},
		{"InFlight/ClockSteps", slotsOutlastSteps},
		{"InFlight/Described", slotsDescribed},
		{"InFlight/Lost", slotsLost},
		{"InFlight/Events", slotEvents},
		{"InFlight/ManyExpire", manySlotsExpire},
	}
}

// long is a hold of which no third passes during a test: what is renewed is renewed by
// the test.
const long = time.Hour

// remainsOf compares what remains of each limit of a key, in the order of the limits.
func remainsOf(t *testing.T, lim *core.Limiter, key string, want ...int64) {
	t.Helper()
	if got := limits.Left(t, lim, key); !slices.Equal(got, want) {
		t.Errorf("%s: %d remain, want %d", key, got, want)
	}
}

// slotsAtRandom has several processes take slots beside a window, give them back, renew them, and die. After each step
// it compares what is free with the plain rule: an unexpired holder has its slots, and the window what was charged and
// not cancelled.
func slotsAtRandom(t *testing.T, s Store) {
	for seed := range uint64(8) {
		tr := &slotTrial{Rand: rand.New(rand.NewPCG(seed, 16)), store: s, name: fmt.Sprint("slots", seed), scale: 1}
		if seed%4 == 3 {
			tr.scale = 10_000_000
		}
		tr.processes = []*core.Limiter{tr.process(t, 0)}
		if s.Redis != nil { // in memory each has its own
			tr.processes = append(tr.processes, tr.process(t, 1), tr.process(t, 2))
		}
		for step := range 150 {
			tr.step(t)
			if t.Failed() {
				t.Fatalf("seed %d, step %d", seed, step)
			}
		}
		for _, lim := range tr.processes {
			_ = lim.Close()
		}
	}
}

// Of a slotTrial there are so many slots, and units in the window, times its scale.
const (
	trialSlots  = 7
	trialWindow = 90
)

type slotTrial struct {
	*rand.Rand

	scale     int64
	store     Store
	name      string
	processes []*core.Limiter
	held      []slot // those that have not expired
	gone      []slot // those that have, or were lost
	used      int64  // units of the window
	resets    int
	latest    time.Time // the latest expiry since no slot was taken
}

// A slot is what was admitted in one call.
type slot struct {
	grant

	expiry time.Time
	resets int // how many there had been
}

// slotLasts is for how long the slots of the i-th process are held.
func slotLasts(i int) time.Duration { return long / time.Duration(1+5*(i%2)) }

func (tr *slotTrial) process(t *testing.T, i int) *core.Limiter {
	return tr.store.limiter(t, tr.name,
		core.InFlight(tr.scale*trialSlots, core.SlotTTL(slotLasts(i))), core.FixedWindow(core.Per(tr.scale*trialWindow, 400*24*time.Hour)))
}

func (tr *slotTrial) free() int64 {
	free := tr.scale * trialSlots
	for _, x := range tr.held {
		free -= x.n
	}
	return free
}

// drop moves slots to those that are gone.
func (tr *slotTrial) drop(which func(slot) bool) {
	tr.held = slices.DeleteFunc(tr.held, func(x slot) bool {
		if which(x) {
			tr.gone = append(tr.gone, x)
		}
		return which(x)
	})
}

func (tr *slotTrial) step(t *testing.T) {
	i := tr.IntN(len(tr.processes))
	by := tr.processes[i]
	now := peek(t, by, "k").At
	if tr.store.Redis != nil { // in memory the Limiter renews them by the same clock
		tr.drop(func(x slot) bool { return !x.expiry.After(now) })
	}
	remainsOf(t, by, "k", tr.free(), max(0, tr.scale*trialWindow-tr.used))
	tr.compareTTL(t)
	switch tr.IntN(10) {
	case 0, 1, 2:
		tr.take(t, i)
	case 3, 4:
		tr.end(t)
	case 5, 6:
		if tr.store.Redis != nil && tr.IntN(4) == 0 {
			tr.store.Redis.ScriptFlush(t.Context())
		}
		inside.Core.Driver(by).Renew()
		for j := range tr.held {
			if tr.held[j].lim == by {
				tr.held[j].expiry = now.Add(slotLasts(i))
				tr.latest = later(tr.latest, tr.held[j].expiry)
			}
		}
	case 7:
		tr.advance(now)
	case 8:
		if tr.store.Redis != nil && tr.IntN(4) == 0 { // one dies, and another takes its place
			_ = by.Close()
			tr.processes[i] = tr.process(t, i)
		}
	case 9:
		tr.forget(t, by)
	}
}

func (tr *slotTrial) take(t *testing.T, i int) {
	n := tr.scale * tr.Int64N(5)
	if tr.IntN(20) == 0 {
		n = tr.scale*trialSlots + 1
	}
	g := acquire(t, tr.processes[i], "k", n)
	if fits := n <= tr.free() && n+tr.used <= tr.scale*trialWindow || n == 0; g.Allowed != fits {
		t.Errorf("%d beside %d slots and %d units: %+v", n, tr.scale*trialSlots-tr.free(), tr.used, g.Result)
	}
	if g.Allowed && n > 0 {
		x := slot{g, g.At.Add(slotLasts(i)), tr.resets}
		tr.held, tr.used, tr.latest = append(tr.held, x), tr.used+n, later(tr.latest, x.expiry)
	}
}

// end ends a call, in time or too late. A cancelled one is given back by the window, too.
func (tr *slotTrial) end(t *testing.T) {
	from := &tr.held
	if tr.IntN(4) == 0 {
		from = &tr.gone
	}
	if len(*from) == 0 {
		return
	}
	j := tr.IntN(len(*from))
	x := (*from)[j]
	*from = slices.Delete(*from, j, j+1)
	if tr.IntN(2) == 0 {
		release(t, x.grant)
		return
	}
	cancel(t, x.grant)
	if x.resets == tr.resets {
		tr.used -= x.n
	}
}

// advance moves the clock at random, or to an expiry, or just before it.
func (tr *slotTrial) advance(now time.Time) {
	d := time.Duration(tr.Int64N(int64(long)))
	if len(tr.held) > 0 && tr.IntN(2) == 0 {
		d = max(0, tr.held[tr.IntN(len(tr.held))].expiry.Sub(now)-time.Duration(tr.IntN(2))*time.Microsecond)
	}
	tr.store.Advance(d)
}

// forget resets the key, which keeps the slots, or loses these.
func (tr *slotTrial) forget(t *testing.T, by *core.Limiter) {
	switch {
	case tr.IntN(3) > 0:
	case tr.store.Redis != nil && tr.IntN(2) == 0:
		tr.store.Redis.Del(t.Context(), "rl:"+tr.name+":{k}:inflight")
		tr.drop(func(slot) bool { return true })
		inside.Core.Driver(by).Renew() // which does not take them again
	default:
		check.OK(t, by.Reset(t.Context(), "k"))
		tr.used = 0
		tr.resets++
		tr.store.Advance(time.Microsecond) // a charge is known by when its window was opened
	}
}

// compareTTL compares the TTL of the key with its latest slot.
func (tr *slotTrial) compareTTL(t *testing.T) {
	if len(tr.held) == 0 {
		tr.latest = time.Time{}
	}
	if tr.store.Redis == nil {
		return
	}
	key := "rl:" + tr.name + ":{k}:inflight"
	stored := slices.ContainsFunc(tr.store.keys(t), func(k string) bool { return k == key })
	if !stored || len(tr.held) == 0 {
		if stored != (len(tr.held) > 0) {
			t.Errorf("%d calls hold slots, and stored is %v", len(tr.held), tr.store.dump(t))
		}
		return
	}
	last := time.Time{}
	for _, x := range tr.held {
		last = later(last, x.expiry)
	}
	if at := tr.store.expiry(t, key); at.Before(last.Truncate(time.Millisecond)) || at.After(tr.latest.Add(2*time.Second)) {
		t.Errorf("the key expires %v after its latest slot", at.Sub(last))
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// slotEnds ends calls that hold slots, units of a bucket, and a place in a queue.
func slotEnds(t *testing.T, s Store) {
	lim := s.limiter(t, "slots", core.InFlight(10, core.SlotTTL(long)),
		core.TokenBucket(core.PerDay(10)), core.LeakyBucket(core.PerDay(10), core.Burst(10)))
	for i, c := range []struct {
		name string
		take func(*testing.T, *core.Limiter, string, int64) grant
		end  func(*testing.T, grant)
		left [2]int64 // of the bucket and the queue
	}{
		{"charged, released", acquire, release, [2]int64{6, 6}},
		{"charged, cancelled", acquire, cancel, [2]int64{10, 6}}, // the place has begun
		{"held, settled", reserve, func(t *testing.T, g grant) { settle(t, g, 1) }, [2]int64{9, 6}},
		{"held, released", reserve, release, [2]int64{6, 6}},
		{"held, cancelled", reserve, cancel, [2]int64{10, 6}},
	} {
		key := fmt.Sprint("k", i)
		g := c.take(t, lim, key, 4)
		if g.reserved {
			g.Keep()
		}
		remainsOf(t, lim, key, 6, 6, 6)
		inside.Core.Driver(lim).Renew()
		remainsOf(t, lim, key, 6, 6, 6)
		for range 2 {
			c.end(t, g)
			remainsOf(t, lim, key, 10, c.left[0], c.left[1])
			inside.Core.Driver(lim).Renew()
		}
		if t.Failed() {
			t.Fatal(c.name)
		}
	}
}

// slotsOutlastSteps has the clock step: a live holder keeps its slot if it steps back,
// and if it steps on by less than a third of the hold.
func slotsOutlastSteps(t *testing.T, s Store) {
	s.needsStepsBack(t)
	lim := s.limiter(t, "slots", core.InFlight(1, core.SlotTTL(long)))
	other := s.limiter(t, "slots", core.InFlight(1, core.SlotTTL(long)))
	held := acquire(t, lim, "k", 1)
	for i, step := range []time.Duration{
		long/3 - time.Microsecond, -time.Hour, long/3 - time.Microsecond, -24 * time.Hour, 0, long/3 - time.Microsecond, -time.Microsecond,
	} {
		s.Advance(long / 3)
		s.Advance(step)
		if res := acquire(t, other, "k", 1); res.Allowed {
			t.Fatalf("step %d: another has the slot: %+v", i, res.Result)
		}
		s.Advance(long / 3) // and the renewal is late by as much
		inside.Core.Driver(lim).Renew()
	}
	release(t, held)
	want(t, peek(t, other, "k"), true, 1, 0, 0)
	s.unstored(t)

	dead := acquire(t, lim, "dead", 1)
	_ = lim.Close()
	s.Advance(-time.Minute)
	s.Advance(long)
	want(t, acquire(t, other, "dead", 1).Result, false, 0, time.Second, 0) // a dead one's is withheld for as much longer
	s.Advance(time.Minute)
	want(t, acquire(t, other, "dead", 1).Result, true, 0, 0, 0)
	s.Advance(-long) // the clock steps back: another's slot seems to be as old as the dead one's
	release(t, dead)
	want(t, peek(t, other, "dead"), false, 0, time.Second, 0)
}

// slotsDescribed has the one Result describe slots only where they deny.
func slotsDescribed(t *testing.T, s Store) {
	lim := s.limiter(t, "slots", core.InFlight(2), core.FixedWindow(core.PerHour(100)))
	if res := peek(t, lim, "k"); res.LimitName != "fixed-1h" {
		t.Errorf("nothing is used: %+v", res)
	}
	held := acquire(t, lim, "k", 2)
	if !held.Allowed || held.LimitName != "fixed-1h" || held.Remaining != 98 {
		t.Errorf("admitted, and no slot is left: %+v", held.Result)
	}
	res := acquire(t, lim, "k", 1).Result
	want(t, res, false, 0, time.Second, 0)
	if res.LimitName != "inflight" || res.Limit != 2 || res.Window != 0 {
		t.Errorf("denied for want of a slot: %+v", res)
	}
	release(t, held)
}

// slotsLost makes Redis lose the state, or memory evict it: the holder is notified.
func slotsLost(t *testing.T, s Store) {
	var lost atomic.Int64
	open := func(name string) *core.Limiter {
		return s.limiter(t, name, core.InFlight(5, core.SlotTTL(long)), s.entries(1), core.Observe(func(_ context.Context, e core.Event) {
			if e.Kind == core.EventSlotLost && errors.Is(e.Err, core.ErrSlotLost) {
				lost.Add(e.Cost)
			}
		}))
	}
	lim := open("slots")
	others := lim
	if s.Redis == nil {
		others = open("others") // there is room for one key
	}
	held, safe := acquire(t, lim, "k", 3), acquire(t, others, "safe", 1)
	ctx, stop := held.Context(context.Background())
	defer stop()
	safeCtx, stopSafe := safe.Context(context.Background())
	defer stopSafe()
	inside.Core.Driver(lim).Renew()
	if ctx.Err() != nil {
		t.Errorf("canceled while it is held: %v", context.Cause(ctx))
	}
	if s.Redis == nil {
		acquire(t, lim, "another", 1)
	} else {
		s.Redis.Del(context.Background(), "rl:slots:{k}:inflight")
	}
	inside.Core.Driver(lim).Renew()
	inside.Core.Driver(others).Renew()
	if !errors.Is(context.Cause(ctx), core.ErrSlotLost) || lost.Load() != 3 {
		t.Errorf("after a loss: %v, %d slots are lost, want 3", context.Cause(ctx), lost.Load())
	}
	if safeCtx.Err() != nil {
		t.Errorf("another was canceled: %v", safeCtx.Err())
	}
	late, stopLate := held.Context(context.Background())
	defer stopLate()
	if !errors.Is(context.Cause(late), core.ErrSlotLost) {
		t.Error("a context made after the loss is not canceled")
	}
	release(t, held)
	release(t, safe)
	stopSafe()
	if cause := context.Cause(safeCtx); !errors.Is(cause, context.Canceled) || errors.Is(cause, core.ErrSlotLost) {
		t.Errorf("released: the cause is %v", cause)
	}
}

// slotEvents counts what this process holds.
func slotEvents(t *testing.T, s Store) {
	var mu sync.Mutex
	held := map[string]int64{}
	lim := s.limiter(t, "slots", core.InFlight(5), core.InFlight(50, core.LimitName("all")), core.Observe(func(_ context.Context, e core.Event) {
		mu.Lock()
		defer mu.Unlock()
		if e.Kind == core.EventSlots {
			held[e.Result.LimitName] += e.Cost
		}
	}))
	holds := func(when string, want int64) {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		if held["inflight"] != want || held["all"] != want || len(held) != 2 {
			t.Errorf("%s: %v are held, want %d of each", when, held, want)
		}
	}
	first, second, third := acquire(t, lim, "k", 1), acquire(t, lim, "k", 2), reserve(t, lim, "other", 3)
	acquire(t, lim, "k", 5) // denied
	holds("taken", 6)
	release(t, first)
	release(t, first)
	holds("one released", 5)
	cancel(t, second)
	holds("two cancelled", 3)
	settle(t, third, 0)
	release(t, third)
	holds("all settled", 0)
}

// manySlotsExpire has more slots expire than are removed at once.
func manySlotsExpire(t *testing.T, s Store) {
	lim := s.limiter(t, "slots", core.InFlight(100_000, core.SlotTTL(long)))
	check.Together(4, func(i int) {
		for range 300 {
			acquire(t, lim, "k", 1+int64(i%2))
		}
	})
	remains(t, lim, "k", 100_000-1800)
	_ = lim.Close()
	s.Advance(long)
	peek(t, lim, "k")
	peek(t, lim, "k")
	want(t, peek(t, lim, "k"), true, 100_000, 0, 0)
	s.unstored(t)
}
