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

// long is a TTL of slots. Not even a third of it passes during a test, so the limiter never renews slots on its own: only
// the test does.
const long = time.Hour

// remainsOf checks how many units remain of each limit of a key, in the order of the limits.
func remainsOf(t *testing.T, lim *core.Limiter, key string, want ...int64) {
	t.Helper()
	if got := limits.Left(t, lim, key); !slices.Equal(got, want) {
		t.Errorf("of the limits of key %s %d units remain, want %d", key, got, want)
	}
}

// slotsAtRandom makes several processes take slots beside a window, give them back, renew them, and die. After each step it
// compares what remains with the plain rule: an unexpired holder has its slots, and the window counts what was charged and
// not canceled.
func slotsAtRandom(t *testing.T, s Store) {
	for seed := range uint64(8) {
		tr := &slotTrial{Rand: rand.New(rand.NewPCG(seed, 16)), store: s, name: fmt.Sprint("slots", seed), scale: 1}
		if seed%4 == 3 {
			tr.scale = 10_000_000
		}
		tr.processes = []*core.Limiter{tr.process(t, 0)}
		if s.Redis != nil { // in memory each process has slots of its own
			tr.processes = append(tr.processes, tr.process(t, 1), tr.process(t, 2))
		}
		for step := range 150 {
			tr.step(t)
			if t.Failed() {
				t.Fatalf("the failure is in step %[2]d of seed %[1]d", seed, step)
			}
		}
		for _, lim := range tr.processes {
			_ = lim.Close()
		}
	}
}

// A slotTrial has trialSlots slots, and trialWindow units in its window, both multiplied by its scale.
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
	held      []slot // the slots that have not expired
	gone      []slot // the slots that have expired or were lost
	used      int64  // how many units of the window are used
	resets    int
	latest    time.Time // the latest expiry of any slot since a time when none was taken
}

// A slot holds the slots that one call took.
type slot struct {
	grant

	expiry time.Time
	resets int // how many resets came before it
}

// slotLasts returns the TTL of the slots that the i-th process takes.
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

// drop moves the slots that match from the held ones to the gone ones.
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
	if tr.store.Redis != nil { // in memory the Limiter renews slots by the clock of the test, so they do not expire
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
		if tr.store.Redis != nil && tr.IntN(4) == 0 { // the process dies, and a new one starts
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
		t.Errorf("a cost of %d with %d slots taken and %d units used: got %+v, want allowed %v", n, tr.scale*trialSlots-tr.free(), tr.used, g.Result, fits)
	}
	if g.Allowed && n > 0 {
		x := slot{g, g.At.Add(slotLasts(i)), tr.resets}
		tr.held, tr.used, tr.latest = append(tr.held, x), tr.used+n, later(tr.latest, x.expiry)
	}
}

// end ends a call, in time or too late, by Release or Cancel. Only Cancel gives back the units of the window, too.
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

// advance moves the clock by a random time, or to an expiry, or to just before one.
func (tr *slotTrial) advance(now time.Time) {
	d := time.Duration(tr.Int64N(int64(long)))
	if len(tr.held) > 0 && tr.IntN(2) == 0 {
		d = max(0, tr.held[tr.IntN(len(tr.held))].expiry.Sub(now)-time.Duration(tr.IntN(2))*time.Microsecond)
	}
	tr.store.Advance(d)
}

// forget deletes the key of the slots, so that they are lost, or resets the key, which keeps the slots.
func (tr *slotTrial) forget(t *testing.T, by *core.Limiter) {
	switch {
	case tr.IntN(3) > 0:
	case tr.store.Redis != nil && tr.IntN(2) == 0:
		tr.store.Redis.Del(t.Context(), "rl:"+tr.name+":{k}:inflight")
		tr.drop(func(slot) bool { return true })
		inside.Core.Driver(by).Renew() // renewing must not take the lost slots again
	default:
		check.OK(t, by.Reset(t.Context(), "k"))
		tr.used = 0
		tr.resets++
		tr.store.Advance(time.Microsecond) // so that the next window opens at another instant: a Cancel finds its charge by this instant
	}
}

// compareTTL compares the TTL of the stored key with the expiry of its latest slot.
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
			t.Errorf("%d calls hold slots, and %v is stored; want the key of the slots stored if and only if some are held", len(tr.held), tr.store.dump(t))
		}
		return
	}
	last := time.Time{}
	for _, x := range tr.held {
		last = later(last, x.expiry)
	}
	if at := tr.store.expiry(t, key); at.Before(last.Truncate(time.Millisecond)) || at.After(tr.latest.Add(2*time.Second)) {
		t.Errorf("the key expires %v after its latest slot, want 0s to %v", at.Sub(last), tr.latest.Add(2*time.Second).Sub(last))
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
		left [2]int64 // units that remain of the bucket and of the queue
	}{
		{"charged, released", acquire, release, [2]int64{6, 6}},
		{"charged, cancelled", acquire, cancel, [2]int64{10, 6}}, // the place has begun, so the queue keeps it
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
			t.Fatalf("the failure is in the case %q", c.name)
		}
	}
}

// slotsOutlastSteps lets the clock step. A live holder keeps its slot when the clock steps back, and when the clock steps
// forward by less than a third of the TTL.
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
			t.Fatalf("step %d: another process took the slot that is held: %+v", i, res.Result)
		}
		s.Advance(long / 3) // the renewal is late by another third
		inside.Core.Driver(lim).Renew()
	}
	release(t, held)
	want(t, peek(t, other, "k"), true, 1, 0, 0)
	s.unstored(t)

	dead := acquire(t, lim, "dead", 1)
	_ = lim.Close()
	s.Advance(-time.Minute)
	s.Advance(long)
	want(t, acquire(t, other, "dead", 1).Result, false, 0, time.Second, 0) // the slot of a dead holder stays taken for as much longer as the clock stepped back
	s.Advance(time.Minute)
	want(t, acquire(t, other, "dead", 1).Result, true, 0, 0, 0)
	s.Advance(-long) // now the other's slot seems to be as old as the dead holder's
	release(t, dead)
	want(t, peek(t, other, "dead"), false, 0, time.Second, 0)
}

// slotsDescribed checks that the one Result of a decision describes slots only if they deny.
func slotsDescribed(t *testing.T, s Store) {
	lim := s.limiter(t, "slots", core.InFlight(2), core.FixedWindow(core.PerHour(100)))
	if res := peek(t, lim, "k"); res.LimitName != "fixed-1h" {
		t.Errorf("with nothing used: got %+v, want the window described", res)
	}
	held := acquire(t, lim, "k", 2)
	if !held.Allowed || held.LimitName != "fixed-1h" || held.Remaining != 98 {
		t.Errorf("admitted to the last slots: got %+v, want the window described, with 98 units remaining", held.Result)
	}
	res := acquire(t, lim, "k", 1).Result
	want(t, res, false, 0, time.Second, 0)
	if res.LimitName != "inflight" || res.Limit != 2 || res.Window != 0 {
		t.Errorf("denied for want of a slot: got %+v, want the slots described", res)
	}
	release(t, held)
}

// slotsLost makes Redis lose the state, or the memory evict it: the holder's context is canceled, and observers are
// notified.
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
		others = open("others") // the memory of a Limiter has room for only one key
	}
	held, safe := acquire(t, lim, "k", 3), acquire(t, others, "safe", 1)
	ctx, stop := held.Context(context.Background())
	defer stop()
	safeCtx, stopSafe := safe.Context(context.Background())
	defer stopSafe()
	inside.Core.Driver(lim).Renew()
	if ctx.Err() != nil {
		t.Errorf("the context ended with %v while the slots were held, want it alive", context.Cause(ctx))
	}
	if s.Redis == nil {
		acquire(t, lim, "another", 1)
	} else {
		s.Redis.Del(context.Background(), "rl:slots:{k}:inflight")
	}
	inside.Core.Driver(lim).Renew()
	inside.Core.Driver(others).Renew()
	if !errors.Is(context.Cause(ctx), core.ErrSlotLost) || lost.Load() != 3 {
		t.Errorf("after the loss: the cause is %v and %d slots were reported lost, want ErrSlotLost and 3", context.Cause(ctx), lost.Load())
	}
	if safeCtx.Err() != nil {
		t.Errorf("the context of another key's slot ended with %v, want it alive", safeCtx.Err())
	}
	late, stopLate := held.Context(context.Background())
	defer stopLate()
	if !errors.Is(context.Cause(late), core.ErrSlotLost) {
		t.Errorf("a context made after the loss has the cause %v, want ErrSlotLost", context.Cause(late))
	}
	release(t, held)
	release(t, safe)
	stopSafe()
	if cause := context.Cause(safeCtx); !errors.Is(cause, context.Canceled) || errors.Is(cause, core.ErrSlotLost) {
		t.Errorf("after a Release the cause is %v, want context.Canceled", cause)
	}
}

// slotEvents checks that the events sum up to the slots that this process holds.
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
			t.Errorf("%s: by the events %v are held, want %d of each limit", when, held, want)
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

// manySlotsExpire lets more slots expire than one script removes.
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
