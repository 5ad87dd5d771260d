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
	"github.com/redislimit/redislimit/internal/hook"
	"github.com/redislimit/redislimit/internal/testkit/limits"
)

// inFlightCases take slots and give them back.
func inFlightCases() []testCase {
	var cases []testCase
	for _, v := range limits.Slots() {
		for _, c := range []struct {
			name string
			run  func(t *testing.T, s Store, limit maker)
		}{
			{"Costs", costs}, {"Peek", peekChangesNothing}, {"Concurrent", concurrent}, {"Foreign", foreign}, {"ScriptFlushed", scriptFlushed},
		} {
			cases = append(cases, testCase{c.name + "/" + v.Name, func(t *testing.T, s Store) { c.run(t, s, v.Limit) }})
		}
	}
	return append(cases,
		testCase{"InFlight/Slots", takeSlots}, testCase{"InFlight/Once", releaseOnce}, testCase{"InFlight/Units", releaseUnits},
		testCase{"InFlight/Reserved", releaseReserved}, testCase{"InFlight/Expires", slotsExpire}, testCase{"InFlight/Late", releaseLate},
		testCase{"InFlight/Renewed", slotsAreRenewed}, testCase{"InFlight/ClockSteps", slotsOutlastSteps}, testCase{"InFlight/TTL", slotsTTL},
		testCase{"InFlight/Reset", slotsOutliveReset}, testCase{"InFlight/Several", slotsAmongSeveral}, testCase{"InFlight/Tightest", slotsAreTightest},
		testCase{"InFlight/Lost", slotsLost}, testCase{"InFlight/Churn", slotsChurn}, testCase{"InFlight/Model", slotsModel},
		testCase{"InFlight/Events", slotEvents}, testCase{"InFlight/Batches", slotBatches}, testCase{"InFlight/ManyExpire", manySlotsExpire},
	)
}

// long is a hold of which no third passes during a test: what is renewed is renewed by
// the test.
const long = time.Hour

// others returns another Limiter over the keys of lim, or lim itself where each has its
// own.
func (s Store) others(t *testing.T, lim *core.Limiter, opts ...core.Option) *core.Limiter {
	t.Helper()
	if s.Redis == nil {
		return lim
	}
	return s.limiter(t, lim.Name(), opts...)
}

func release(t *testing.T, lim *core.Limiter, res core.Result) {
	t.Helper()
	if err := lim.Release(context.Background(), res); err != nil {
		t.Fatalf("Release: %v", err)
	}
}

func takeSlots(t *testing.T, s Store) {
	lim := s.limiter(t, "slots", core.InFlight(3))
	other := s.others(t, lim, core.InFlight(3))
	var held []core.Result
	for left := range int64(3) {
		res := allowN(t, lim, "k", 1)
		if !res.Allowed || !res.HasSlots() || res.Limit != 3 || res.Remaining != 2-left || res.ResetAfter != 0 || res.Window != 0 || res.Name != "inflight" {
			t.Errorf("slot %d: %+v", left, res)
		}
		held = append(held, res)
	}
	denied := allowN(t, other, "k", 1)
	want(t, denied, false, 0, time.Second, 0)
	if denied.HasSlots() {
		t.Error("a denial has slots")
	}
	want(t, peek(t, other, "k"), false, 0, time.Second, 0)
	want(t, allowN(t, other, "other", 1), true, 2, 0, 0)
	release(t, lim, held[1])
	want(t, peek(t, other, "k"), true, 1, 0, 0)
	want(t, allowN(t, other, "k", 1), true, 0, 0, 0)
	release(t, lim, held[0])
	release(t, lim, held[2])
	remains(t, other, "k", 2)
}

func releaseOnce(t *testing.T, s Store) {
	lim := s.limiter(t, "slots", core.InFlight(5))
	first := allowN(t, lim, "k", 1)
	copied := first
	rest := allowN(t, lim, "k", 4)
	denied := allowN(t, lim, "k", 1)
	release(t, lim, first)
	release(t, lim, first)
	release(t, lim, copied)
	refund(t, lim, copied)
	release(t, lim, denied)
	release(t, lim, core.Result{Allowed: true})
	remains(t, lim, "k", 1)
	other := s.limiter(t, "other", core.InFlight(5))
	if err := other.Release(context.Background(), rest); !errors.Is(err, core.ErrInvalidResult) {
		t.Errorf("of another limiter: %v", err)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := lim.Release(ended, rest); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
	if err := lim.Settle(context.Background(), rest, 0); !errors.Is(err, core.ErrInvalidResult) {
		t.Errorf("Settle of what was not reserved: %v", err)
	}
	remains(t, lim, "k", 1)
	release(t, lim, rest)
	want(t, peek(t, lim, "k"), true, 5, 0, 0)
	s.unstored(t)

	again := allowN(t, lim, "k", 2)
	refund(t, lim, again) // gives back all, slots too
	release(t, lim, again)
	want(t, peek(t, lim, "k"), true, 5, 0, 0)

	without := s.limiter(t, "without", core.FixedWindow(tenPerTen))
	charged := allowN(t, without, "k", 3)
	if charged.HasSlots() {
		t.Error("a window has slots")
	}
	release(t, without, charged)
	remains(t, without, "k", 7)
}

// releaseUnits has calls of several units beside those of one.
func releaseUnits(t *testing.T, s Store) {
	lim := s.limiter(t, "slots", core.InFlight(1_000_000_000, core.Hold(long)))
	five, one, most, again := allowN(t, lim, "k", 5), allowN(t, lim, "k", 1), allowN(t, lim, "k", 999_999_900), allowN(t, lim, "k", 5)
	remains(t, lim, "k", 89)
	release(t, lim, most)
	hook.Renew(lim)
	release(t, lim, one)
	remains(t, lim, "k", 999_999_990)
	release(t, lim, five)
	remains(t, lim, "k", 999_999_995)
	release(t, lim, again)
	remains(t, lim, "k", 1_000_000_000)
	s.unstored(t)
	if res := allowN(t, lim, "k", 1<<62); res.Allowed || res.RetryAfter != core.Never {
		t.Errorf("above the capacity: %+v", res)
	}
}

// releaseReserved has slots beside units that are reserved.
func releaseReserved(t *testing.T, s Store) {
	lim := s.limiter(t, "slots", core.InFlight(10), core.TokenBucket(core.PerHour(10)), core.LeakyBucket(core.PerHour(10), core.Burst(10)))
	left := func(when string, want ...int64) {
		t.Helper()
		var got []int64
		for each := range peek(t, lim, "k").All() {
			got = append(got, each.Remaining)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v are left, want %v", when, got, want)
		}
	}
	res := reserve(t, lim, "k", 4)
	left("reserved", 6, 6, 6)
	settle(t, lim, res, 1)
	left("settled", 10, 9, 6)
	release(t, lim, res)
	res = reserve(t, lim, "k", 4)
	release(t, lim, res)
	release(t, lim, res)
	left("released", 10, 5, 2)
	lim.KeepHeld(res)
	hook.Renew(lim)
	left("renewed", 10, 5, 2)
	settle(t, lim, res, 0)
	left("settled after that", 10, 9, 6)
	res = reserve(t, lim, "k", 0)
	release(t, lim, res)
	settle(t, lim, res, 0)
	left("nothing", 10, 9, 6)
	refund(t, lim, reserve(t, lim, "k", 2))
	left("refunded", 10, 9, 6)
	charged := allowN(t, lim, "k", 3)
	release(t, lim, charged)
	left("charged and released", 10, 6, 3)
	refund(t, lim, charged)
	left("and refunded", 10, 9, 6)
}

// slotsExpire has a process die: its slots are free when Hold is over, to the
// microsecond, and nothing of them stays.
func slotsExpire(t *testing.T, s Store) {
	dies := s.limiter(t, "slots", core.InFlight(2, core.Hold(long)))
	lives := s.others(t, dies, core.InFlight(2, core.Hold(long)))
	allowN(t, dies, "k", 1)
	s.Advance(time.Minute)
	second := allowN(t, lives, "k", 1)
	_ = dies.Close()
	s.Advance(long - time.Minute - time.Microsecond)
	want(t, allowN(t, lives, "k", 1), false, 0, time.Second, 0)
	s.Advance(time.Microsecond)
	want(t, peek(t, lives, "k"), true, 1, 0, 0)
	s.Advance(time.Minute - time.Microsecond)
	remains(t, lives, "k", 1)
	s.Advance(time.Microsecond)
	want(t, peek(t, lives, "k"), true, 2, 0, 0)
	release(t, lives, second)
	want(t, peek(t, lives, "k"), true, 2, 0, 0)
	s.unstored(t)
}

// releaseLate releases a slot that has expired, when another call has it.
func releaseLate(t *testing.T, s Store) {
	lim := s.limiter(t, "slots", core.InFlight(1, core.Hold(long)))
	first := allowN(t, lim, "k", 1)
	_ = lim.Close() // nothing is renewed any more
	s.Advance(long)
	second := allowN(t, lim, "k", 1)
	if !second.Allowed {
		t.Fatalf("after the hold: %+v", second)
	}
	release(t, lim, first)
	want(t, peek(t, lim, "k"), false, 0, time.Second, 0)
	if s.Redis != nil && !s.ForgetsByClock { // the clock steps back: the second one's slot seems to be as old as the first one's
		s.Advance(-long)
		third := allowN(t, lim, "k2", 1)
		s.Advance(long)
		fourth := allowN(t, lim, "k2", 1)
		release(t, lim, third)
		want(t, peek(t, lim, "k2"), false, 0, time.Second, 0)
		release(t, lim, fourth)
		want(t, peek(t, lim, "k2"), true, 1, 0, 0)
	}
	release(t, lim, second)
	want(t, peek(t, lim, "k"), true, 1, 0, 0)
}

// slotsAreRenewed has work that takes much longer than the hold.
func slotsAreRenewed(t *testing.T, s Store) {
	lim := s.limiter(t, "slots", core.InFlight(3, core.Hold(long)), core.FixedWindow(core.PerDay(100)))
	one, two := allowN(t, lim, "k", 1), allowN(t, lim, "k", 2)
	elsewhere := allowN(t, lim, "other", 1)
	for range 10 {
		s.Advance(long / 3)
		if s.Redis != nil {
			if err := s.Redis.ScriptFlush(context.Background()).Err(); err != nil {
				t.Fatal(err)
			}
		}
		hook.Renew(lim)
		for _, key := range s.slotKeys(t) {
			if got := s.expiry(t, key).Sub(s.now()); got < long || got > long+time.Second {
				t.Errorf("%s: after it was renewed it expires in %v", key, got)
			}
		}
	}
	if res := allowN(t, lim, "k", 1); res.Allowed {
		t.Errorf("the work goes on: %+v", res)
	}
	release(t, lim, two)
	s.Advance(long / 3)
	hook.Renew(lim)
	remainsOf(t, lim, "k", "inflight", 2)
	remainsOf(t, lim, "k", "fixed-1d", 97)
	remainsOf(t, lim, "other", "inflight", 2)
	release(t, lim, one)
	release(t, lim, elsewhere)
	remainsOf(t, lim, "k", "inflight", 3)
}

func (s Store) now() time.Time {
	if s.Clock != nil {
		return s.Clock()
	}
	reply, err := s.Redis.Eval(context.Background(), "return redis.call('TIME')[1]", []string{"k"}).Int64()
	if err != nil {
		return time.Time{}
	}
	return time.Unix(reply, 0)
}

// slotKeys returns the keys in Redis that have slots.
func (s Store) slotKeys(t *testing.T) []string {
	t.Helper()
	if s.Redis == nil {
		return nil
	}
	return slices.DeleteFunc(s.keys(t), func(key string) bool { return s.Redis.Type(context.Background(), key).Val() != "zset" })
}

func remainsOf(t *testing.T, lim *core.Limiter, key, limit string, want int64) {
	t.Helper()
	for each := range peek(t, lim, key).All() {
		if each.Name == limit && each.Remaining != want {
			t.Errorf("%s: %d remain, want %d", limit, each.Remaining, want)
		}
	}
}

// slotsOutlastSteps has the clock step: a live holder keeps its slot if it steps back,
// and if it steps on by less than a third of the hold.
func slotsOutlastSteps(t *testing.T, s Store) {
	if s.Redis == nil || s.ForgetsByClock {
		t.Skip("the clock does not step back")
	}
	lim := s.limiter(t, "slots", core.InFlight(1, core.Hold(long)))
	other := s.limiter(t, "slots", core.InFlight(1, core.Hold(long)))
	held := allowN(t, lim, "k", 1)
	for i, step := range []time.Duration{
		long/3 - time.Microsecond, -time.Hour, long/3 - time.Microsecond, -24 * time.Hour, 0, long/3 - time.Microsecond, -time.Microsecond,
	} {
		s.Advance(long / 3)
		s.Advance(step)
		if res := allowN(t, other, "k", 1); res.Allowed {
			t.Fatalf("step %d: another has the slot: %+v", i, res)
		}
		s.Advance(long / 3) // and the renewal is late by as much
		hook.Renew(lim)
	}
	release(t, lim, held)
	want(t, peek(t, other, "k"), true, 1, 0, 0)
	s.unstored(t)

	allowN(t, lim, "dead", 1)
	_ = lim.Close()
	s.Advance(-time.Minute)
	s.Advance(long)
	want(t, allowN(t, other, "dead", 1), false, 0, time.Second, 0) // a dead one's is withheld for as much longer
	s.Advance(time.Minute)
	want(t, allowN(t, other, "dead", 1), true, 0, 0, 0)
}

// slotsTTL compares the TTL of the key with its latest slot, after each way to change
// it.
func slotsTTL(t *testing.T, s Store) {
	if s.Redis == nil {
		t.Skip("no keys to look at")
	}
	short := s.limiter(t, "slots", core.InFlight(9, core.Hold(time.Minute)))
	longer := s.limiter(t, "slots", core.InFlight(9, core.Hold(long)))
	var latest time.Time
	covers := func(when string) {
		t.Helper()
		for _, key := range s.keys(t) {
			if at := s.expiry(t, key); at.Before(latest.Truncate(time.Millisecond)) || at.After(latest.Add(2*time.Second)) {
				t.Errorf("%s: the key expires %v after its latest slot", when, at.Sub(latest))
			}
		}
	}
	first := allowN(t, short, "k", 1)
	latest = first.At.Add(time.Minute)
	covers("the first slot")
	s.Advance(time.Second)
	second := allowN(t, longer, "k", 3)
	latest = second.At.Add(long)
	covers("a longer slot")
	s.Advance(time.Second)
	third := allowN(t, short, "k", 1)
	covers("a shorter slot after it")
	s.Advance(time.Second)
	hook.Renew(short)
	covers("renewed, the shorter ones")
	hook.Renew(longer)
	latest = peek(t, short, "k").At.Add(long)
	covers("renewed, the longer one")
	release(t, short, first)
	covers("one released")
	allowN(t, short, "k", 9)
	covers("one denied")
	s.Advance(2 * time.Minute)
	remains(t, longer, "k", 6)
	covers("the shorter ones have expired")
	release(t, short, third)
	release(t, longer, second)
	s.unstored(t)
}

func slotsOutliveReset(t *testing.T, s Store) {
	lim := s.limiter(t, "slots", core.InFlight(3), core.FixedWindow(core.PerHour(9)))
	held := allowN(t, lim, "k", 2)
	if err := lim.Reset(context.Background(), "k"); err != nil {
		t.Fatal(err)
	}
	remainsOf(t, lim, "k", "inflight", 1)
	remainsOf(t, lim, "k", "fixed-1h", 9)
	release(t, lim, held)
	remainsOf(t, lim, "k", "inflight", 3)
}

// slotsAmongSeveral has a denial by one limit take nothing of another.
func slotsAmongSeveral(t *testing.T, s Store) {
	lim := s.limiter(t, "slots", core.FixedWindow(core.PerHour(5)), core.InFlight(2), core.InFlight(9, core.Name("all"), core.Hold(time.Minute)))
	left := func(window, slots, all int64) {
		t.Helper()
		remainsOf(t, lim, "k", "fixed-1h", window)
		remainsOf(t, lim, "k", "inflight", slots)
		remainsOf(t, lim, "k", "all", all)
	}
	first := allowN(t, lim, "k", 2)
	if res := allowN(t, lim, "k", 1); res.Allowed || res.Name != "inflight" || res.RetryAfter != time.Second {
		t.Errorf("no slot is free: %+v", res)
	}
	left(3, 0, 7)
	release(t, lim, first)
	left(3, 2, 9)
	second := allowN(t, lim, "k", 2)
	release(t, lim, second)
	left(1, 2, 9)
	if res := allowN(t, lim, "k", 2); res.Allowed || res.Name != "fixed-1h" {
		t.Errorf("the window is used up: %+v", res)
	}
	left(1, 2, 9)
}

// slotsAreTightest describes slots only where they deny.
func slotsAreTightest(t *testing.T, s Store) {
	lim := s.limiter(t, "slots", core.InFlight(2), core.FixedWindow(core.PerHour(100)))
	if res := peek(t, lim, "k"); res.Name != "fixed-1h" {
		t.Errorf("nothing is used: %+v", res)
	}
	held := allowN(t, lim, "k", 2)
	if !held.Allowed || held.Name != "fixed-1h" || held.Remaining != 98 {
		t.Errorf("admitted, and no slot is left: %+v", held)
	}
	if res := allowN(t, lim, "k", 1); res.Allowed || res.Name != "inflight" || res.Limit != 2 || res.Remaining != 0 {
		t.Errorf("denied for want of a slot: %+v", res)
	}
	release(t, lim, held)
}

// slotsLost has Redis lose the state: the holder learns of it.
func slotsLost(t *testing.T, s Store) {
	if s.Redis == nil {
		t.Skip("memory loses nothing")
	}
	var lost atomic.Int64
	lim := s.limiter(t, "slots", core.InFlight(5, core.Hold(long)), core.Observe(func(_ context.Context, e core.Event) {
		if e.Kind == core.EventSlotLost && errors.Is(e.Err, core.ErrSlotLost) {
			lost.Add(e.Cost)
		}
	}))
	held, safe := allowN(t, lim, "k", 3), allowN(t, lim, "safe", 1)
	ctx, cancel := lim.SlotContext(context.Background(), held)
	defer cancel()
	safeCtx, cancelSafe := lim.SlotContext(context.Background(), safe)
	defer cancelSafe()
	hook.Renew(lim)
	if ctx.Err() != nil {
		t.Errorf("canceled while it is held: %v", context.Cause(ctx))
	}
	if err := s.Redis.Del(context.Background(), "rl:slots:{k}:inflight").Err(); err != nil {
		t.Fatal(err)
	}
	hook.Renew(lim)
	if !errors.Is(context.Cause(ctx), core.ErrSlotLost) || lost.Load() != 3 {
		t.Errorf("after a loss: %v, %d slots are lost, want 3", context.Cause(ctx), lost.Load())
	}
	if safeCtx.Err() != nil {
		t.Errorf("another was canceled: %v", safeCtx.Err())
	}
	late, cancelLate := lim.SlotContext(context.Background(), held)
	defer cancelLate()
	if !errors.Is(context.Cause(late), core.ErrSlotLost) {
		t.Error("a context made after the loss is not canceled")
	}
	others := allowN(t, lim, "k", 5)
	release(t, lim, held)
	want(t, peek(t, lim, "k"), false, 0, time.Second, 0)
	release(t, lim, others)
	release(t, lim, safe)
	cancelSafe()
	if cause := context.Cause(safeCtx); !errors.Is(cause, context.Canceled) || errors.Is(cause, core.ErrSlotLost) {
		t.Errorf("released: the cause is %v", cause)
	}
}

// slotsChurn has many callers work for a while: never are there more than the limit.
func slotsChurn(t *testing.T, s Store) {
	const most = 5
	lim := s.limiter(t, "slots", core.InFlight(most, core.Hold(long)))
	var inFlight, worked atomic.Int64
	var all sync.WaitGroup
	for range 40 {
		all.Go(func() {
			for range 25 {
				res := allowN(t, lim, "k", 1)
				if !res.Allowed {
					continue
				}
				if n := inFlight.Add(1); n > most {
					t.Errorf("%d are under way, of %d", n, most)
				}
				worked.Add(1)
				inFlight.Add(-1)
				if err := lim.Release(context.Background(), res); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if worked.Load() < most {
		t.Errorf("only %d were admitted", worked.Load())
	}
	want(t, peek(t, lim, "k"), true, most, 0, 0)
	s.unstored(t)
}

// A slot is what the exact model knows of an admitted call.
type slot struct {
	core.Result

	by     *core.Limiter
	n      int64
	expiry time.Duration
}

// slotsModel takes, releases, renews and lets expire at random, with several processes
// of which some die, and compares what is free with the exact model after each step.
func slotsModel(t *testing.T, s Store) {
	for seed := range uint64(6) {
		random := rand.New(rand.NewPCG(seed, 16))
		const most = 7
		name := fmt.Sprint("slots", seed)
		newLimiter := func() *core.Limiter { return s.limiter(t, name, core.InFlight(most, core.Hold(long))) }
		processes := []*core.Limiter{newLimiter()}
		if s.Redis != nil {
			processes = append(processes, newLimiter(), newLimiter())
		}
		var now time.Duration
		var slots []slot
		for step := range 150 {
			by := processes[random.IntN(len(processes))]
			slots = slices.DeleteFunc(slots, func(x slot) bool { return x.expiry <= now })
			held := int64(0)
			for _, x := range slots {
				held += x.n
			}
			if got := peek(t, by, "k").Remaining; got != most-held {
				t.Fatalf("seed %d, step %d: %d are free, want %d of %d", seed, step, got, most-held, most)
			}
			switch random.IntN(6) {
			case 0, 1:
				n := 1 + random.Int64N(4)
				res := allowN(t, by, "k", n)
				if res.Allowed != (held+n <= most) {
					t.Fatalf("seed %d, step %d: %d beside %d of %d: allowed is %v", seed, step, n, held, most, res.Allowed)
				}
				if res.Allowed {
					slots = append(slots, slot{res, by, n, now + long})
				}
			case 2:
				if len(slots) > 0 {
					i := random.IntN(len(slots))
					release(t, slots[i].by, slots[i].Result)
					slots = slices.Delete(slots, i, i+1)
				}
			case 3:
				hook.Renew(by)
				for i := range slots {
					if slots[i].by == by {
						slots[i].expiry = now + long
					}
				}
			case 4:
				d := time.Duration(random.Int64N(int64(long)))
				s.Advance(d)
				if s.Redis != nil { // else the Limiter has renewed them meanwhile, by the same clock
					now += d
				}
			case 5:
				if s.Redis != nil && random.IntN(5) == 0 { // one dies, and another takes its place
					i := slices.Index(processes, by)
					_ = by.Close()
					processes[i] = newLimiter()
				}
			}
		}
		if s.Redis == nil {
			_ = processes[0].Close()
		}
	}
}

// slotEvents counts what this process holds.
func slotEvents(t *testing.T, s Store) {
	var mu sync.Mutex
	held := map[string]int64{}
	lim := s.limiter(t, "slots", core.InFlight(5), core.InFlight(50, core.Name("all")), core.Observe(func(_ context.Context, e core.Event) {
		mu.Lock()
		defer mu.Unlock()
		if e.Kind == core.EventSlots {
			held[e.Result.Name] += e.Cost
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
	first, second, third := allowN(t, lim, "k", 1), allowN(t, lim, "k", 2), reserve(t, lim, "other", 3)
	allowN(t, lim, "k", 5) // denied
	holds("taken", 6)
	release(t, lim, first)
	release(t, lim, first)
	holds("one released", 5)
	refund(t, lim, second)
	holds("two refunded", 3)
	settle(t, lim, third, 0)
	release(t, lim, third)
	holds("all settled", 0)
}

// slotBatches has many callers at once take and release slots of several keys.
func slotBatches(t *testing.T, s Store) {
	lim := s.limiter(t, "slots", core.InFlight(1000), core.FixedWindow(core.PerHour(1000)))
	var all sync.WaitGroup
	for i := range 80 {
		all.Go(func() {
			key := fmt.Sprint("k", i%4)
			res, err := lim.AllowN(context.Background(), key, 1+int64(i%3))
			if err != nil || !res.Allowed {
				t.Errorf("%+v, %v", res, err)
			}
			if err := lim.Release(context.Background(), res); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for k := range 4 {
		remainsOf(t, lim, fmt.Sprint("k", k), "inflight", 1000)
	}
	if keys := s.slotKeys(t); len(keys) > 0 {
		t.Errorf("stored is %v", keys)
	}
}

// manySlotsExpire has more slots expire than are removed at once.
func manySlotsExpire(t *testing.T, s Store) {
	lim := s.limiter(t, "slots", core.InFlight(100_000, core.Hold(long)))
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for range 300 {
				allowN(t, lim, "k", 1+int64(i%2))
			}
		})
	}
	all.Wait()
	remains(t, lim, "k", 100_000-1800)
	_ = lim.Close()
	s.Advance(long)
	peek(t, lim, "k")
	peek(t, lim, "k")
	want(t, peek(t, lim, "k"), true, 100_000, 0, 0)
	s.unstored(t)
}
