package core_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/limits"
	"github.com/redislimit/redislimit/internal/testkit/permits"
)

// left returns how many units of each limit remain for the key "k".
func left(t *testing.T, lim *core.Limiter) []int64 {
	t.Helper()
	return limits.Left(t, lim, "k")
}

// textLogger returns a logger, and a function that returns what was logged so far.
func textLogger() (*slog.Logger, func() string) {
	var log check.Log
	return slog.New(slog.NewTextHandler(&log, nil)), log.String
}

// TestReservationOfWrongCost settles a Reservation at costs that are not allowed: the error says so, and nothing is ended. The
// conformance suite checks the costs that are allowed.
func TestReservationOfWrongCost(t *testing.T) {
	t.Parallel()
	for _, cost := range []int64{-1, 1e9 + 1} {
		lim := core.MustNewMemory("test", core.FixedWindow(core.PerDay(10)), core.InFlight(5))
		r, err := lim.Reserve(t.Context(), "k", 3)
		if err != nil || !r.Allowed {
			t.Fatalf("got %v, %v; want it admitted", r, err)
		}
		if err := r.Settle(t.Context(), cost); !errors.Is(err, core.ErrInvalidCost) {
			t.Errorf("Settle at %d: got error %v, want ErrInvalidCost", cost, err)
		}
		if got := left(t, lim); got[0] != 7 || got[1] != 2 {
			t.Errorf("after Settle at %d, %d units and slots remain, want 7 and 2", cost, got)
		}
	}
}

// TestReservationEndsOnce settles a Reservation in several goroutines at the same time: only one of the calls may have an
// effect.
func TestReservationEndsOnce(t *testing.T) {
	t.Parallel()
	for range 200 {
		lim := core.MustNewMemory("test", core.FixedWindow(core.PerDay(100)), core.InFlight(5))
		r, _ := lim.Reserve(t.Context(), "k", 5)
		var ends sync.WaitGroup
		for _, cost := range []int64{0, 7, 20} {
			ends.Go(func() { _ = r.Settle(t.Context(), cost) })
		}
		ends.Wait()
		if got := left(t, lim); got[0] != 100 && got[0] != 93 && got[0] != 80 || got[1] != 5 {
			t.Fatalf("%d units and slots remain, want 100, 93 or 80 units and 5 slots: more than one Settle had an effect", got)
		}
	}
}

// TestReservationOfNothing checks that the methods of Reservations and Permits that hold nothing do nothing and return no
// error: after a denial, after a decision by FailOpen, and on nil.
func TestReservationOfNothing(t *testing.T) {
	t.Parallel()
	away := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	defer func() { _ = away.Close() }()
	lim := core.MustNewMemory("test", core.FixedWindow(core.PerDay(1)), core.InFlight(1))
	open := core.MustNew(away, "open", core.FixedWindow(core.PerDay(1)), core.InFlight(1), core.FailOpen(), core.Logger(slog.New(slog.DiscardHandler)))
	defer func() { _ = open.Close() }()
	denied, err := lim.Acquire(t.Context(), "k", 2)
	if err != nil || denied.Allowed || denied.RetryAfter != core.Never {
		t.Errorf("above the capacity: got %+v, %v; want a denial with RetryAfter Never", denied, err)
	}
	admitted, err := open.Reserve(t.Context(), "k", 1)
	if err != nil || !admitted.Allowed || admitted.Source != core.SourceNone {
		t.Errorf("Reserve with FailOpen: got %+v, %v; want it admitted by SourceNone", admitted, err)
	}
	permitted, err := open.Acquire(t.Context(), "k", 1)
	if err != nil || !permitted.Allowed || permitted.Source != core.SourceNone {
		t.Errorf("Acquire with FailOpen: got %+v, %v; want it admitted by SourceNone", permitted, err)
	}
	noneReserved, err := lim.Reserve(t.Context(), "k", 2)
	if err != nil || noneReserved.Allowed {
		t.Errorf("Reserve above the capacity: got %+v, %v; want a denial", noneReserved, err)
	}
	ctx := t.Context()
	for name, r := range map[string]*core.Reservation{"nil": nil, "a denial": noneReserved, "by FailOpen": admitted, "a zero one": {}} {
		r.Keep()
		if err := errors.Join(r.Settle(ctx, 1), r.Settle(ctx, -1), r.Cancel(ctx)); err != nil {
			t.Errorf("Reservation, %s: got error %v, want none", name, err)
		}
		same, cancel := r.Context(ctx)
		if cancel(); same != ctx {
			t.Errorf("Reservation, %s: Context returned another context than its argument", name)
		}
	}
	for name, p := range map[string]*core.Permit{"nil": nil, "a denial": denied, "by FailOpen": permitted, "a zero one": {}} {
		if err := errors.Join(p.Release(ctx), p.Cancel(ctx)); err != nil {
			t.Errorf("Permit, %s: got error %v, want none", name, err)
		}
		same, cancel := p.Context(ctx)
		if cancel(); same != ctx {
			t.Errorf("Permit, %s: Context returned another context than its argument", name)
		}
	}
	if got := left(t, lim); got[0] != 1 || got[1] != 1 {
		t.Errorf("%d units and slots remain, want 1 and 1", got)
	}
	if r, err := lim.Acquire(t.Context(), "", 1); r != nil || !errors.Is(err, core.ErrInvalidKey) {
		t.Errorf("Acquire without a key: got %v, %v; want nil and ErrInvalidKey", r, err)
	}
	if r, err := lim.Reserve(t.Context(), "k", -1); r != nil || !errors.Is(err, core.ErrInvalidCost) {
		t.Errorf("Reserve of -1: got %v, %v; want nil and ErrInvalidCost", r, err)
	}
}

// TestSlotsAreRenewedInTheBackground checks that a slot is held for work that takes a hundred times the SlotTTL, and that the
// slot becomes free if the process stops renewing it.
func TestSlotsAreRenewedInTheBackground(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lim := core.MustNewMemory("work", core.InFlight(1))
		defer func() { _ = lim.Close() }()
		res, _ := lim.Acquire(t.Context(), "k", 1)
		ctx, cancel := res.Context(t.Context())
		defer cancel()
		for range 1000 {
			time.Sleep(time.Second)
			if other, _ := lim.Acquire(t.Context(), "k", 1); other.Allowed || ctx.Err() != nil {
				t.Fatalf("while the slot is held: got %+v and the context's error %v, want a denial and none", other, ctx.Err())
			}
		}
		if err := lim.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20*time.Second/3 - time.Second) // the slot was renewed at most 10/3 s ago
		if other, _ := lim.Acquire(t.Context(), "k", 1); other.Allowed {
			t.Error("the slot was free before its SlotTTL was over")
		}
		time.Sleep(11*time.Second - 20*time.Second/3)
		if other, _ := lim.Acquire(t.Context(), "k", 1); !other.Allowed {
			t.Error("the slot is held after its SlotTTL, although nothing renews it")
		}
	})
}

// TestEvictedSlotIsLost uses a memory for one key only, so that the slot of another key is evicted. The context of the slot's
// holder must end within a third of the SlotTTL.
func TestEvictedSlotIsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lim := core.MustNewMemory("work", core.InFlight(1, core.SlotTTL(9*time.Second)), core.MaxKeys(1))
		res, _ := lim.Acquire(t.Context(), "k", 1)
		ctx, cancel := res.Context(t.Context())
		defer cancel()
		other, _ := lim.Acquire(t.Context(), "other", 1)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if !errors.Is(context.Cause(ctx), core.ErrSlotLost) {
			t.Errorf("the cause of the context is %v, want ErrSlotLost", context.Cause(ctx))
		}
		_ = other.Release(t.Context())
		time.Sleep(time.Minute) // synctest then checks that no goroutine is left
	})
}

// TestDropped drops Reservations that Keep renews, without ending them: the garbage collector must charge their units and free
// their slots, with one warning for all of them.
func TestDropped(t *testing.T) {
	t.Parallel()
	var slots atomic.Int64 // how many slots are held
	logger, logged := textLogger()
	lim := core.MustNewMemory("test", core.FixedWindow(core.PerDay(100)), core.InFlight(50), core.Hold(10*time.Millisecond), core.Logger(logger),
		core.Observe(func(_ context.Context, e core.Event) {
			if e.Kind == core.EventSlots {
				slots.Add(e.Cost)
			}
		}))
	defer func() { _ = lim.Close() }()
	kept, _ := lim.Acquire(t.Context(), "k", 3)
	func() {
		for range 3 {
			r, _ := lim.Reserve(t.Context(), "k", 1)
			r.Keep()
			r, _ = lim.Reserve(t.Context(), "k", 10)
			_ = r.Cancel(t.Context())
		}
	}()
	check.Eventually(t, "the dropped units and slots are no longer held, and a warning is logged", func() bool {
		runtime.GC()
		_ = lim.Reset(t.Context(), "k") // held units stay held
		return left(t, lim)[0] == 100 && slots.Load() == 3 && logged() != ""
	})
	if n := strings.Count(logged(), "was dropped and never ended"); n != 1 {
		t.Errorf("the warning is logged %d times, want once: %s", n, logged())
	}
	if err := kept.Release(t.Context()); err != nil || slots.Load() != 0 {
		t.Errorf("Release: got error %v, and %d slots are held; want none and 0", err, slots.Load())
	}
}

// TestDroppedUnits drops a Reservation whose units are not renewed: a warning must be logged. Reservations that were ended, or
// that hold nothing, must not cause the warning.
func TestDroppedUnits(t *testing.T) {
	t.Parallel()
	logger, logged := textLogger()
	lim := core.MustNewMemory("test", core.TokenBucket(core.PerDay(1e5)), core.Logger(logger))
	collect := func(take func()) {
		for range 8 {
			for range 5 {
				take()
			}
			runtime.GC()
		}
	}
	for _, end := range []func(r *core.Reservation){
		func(r *core.Reservation) { _ = r.Settle(t.Context(), 3) },
		func(r *core.Reservation) { _ = r.Cancel(t.Context()) },
	} {
		collect(func() {
			r, _ := lim.Reserve(t.Context(), "k", 2)
			end(r)
			r, _ = core.ReserveAll(t.Context(), 1, lim.On("k"), lim.On("l"))
			end(r)
		})
	}
	for _, n := range []int64{0, 1e7} { // nothing is held
		collect(func() { _, _ = lim.Reserve(t.Context(), "k", n) })
	}
	collect(func() { _, _ = lim.Acquire(t.Context(), "k", 1) })
	collect(func() {
		p, _ := core.AcquireAll(t.Context(), 1, lim.On("k"), lim.On("l"))
		_ = p.Release(t.Context())
	})
	if logged() != "" {
		t.Errorf("got the log %q, want an empty one", logged())
	}
	check.Eventually(t, "a warning is logged", func() bool {
		collect(func() { _, _ = lim.Reserve(t.Context(), "k", 1) })
		return logged() != ""
	})
	if n := strings.Count(logged(), "was dropped and never ended"); n != 1 {
		t.Errorf("the warning is logged %d times, want once: %s", n, logged())
	}
}

// TestAcquireWait checks that callers of AcquireWait and ReserveWait wait for slots, for units and for their Delay, and that a
// caller whose context ends leaves the queue.
func TestAcquireWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lim := core.MustNewMemory("test", core.InFlight(1))
		defer func() { _ = lim.Close() }()
		begun := time.Now()
		first, err := lim.AcquireWait(t.Context(), "k", 1)
		if err != nil {
			t.Fatal(err)
		}
		var waiting sync.WaitGroup
		for i := range 3 { // each works for 10 ms, and the next one is woken at once
			waiting.Go(func() {
				r, err := lim.AcquireWait(t.Context(), "k", 1)
				if took, want := time.Since(begun), time.Duration(i+1)*10*time.Millisecond; err != nil || took != want {
					t.Errorf("waiter %d: got error %v after %v, want none after %v", i, err, took, want)
				}
				time.Sleep(10 * time.Millisecond)
				_ = r.Release(t.Context())
			})
			synctest.Wait()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer cancel()
		if r, err := lim.AcquireWait(ctx, "k", 1); r != nil || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a deadline before a slot is free: got %v, %v; want nil and DeadlineExceeded", r, err)
		}
		time.Sleep(5 * time.Millisecond)
		_ = first.Release(t.Context())
		waiting.Wait()
		if r, err := lim.AcquireWait(t.Context(), "k", 2); r != nil || !errors.Is(err, core.ErrNeverAdmitted) {
			t.Errorf("more slots than there are: got %v, %v; want nil and ErrNeverAdmitted", r, err)
		}
	})
	for name, take := range map[string]func(*core.Limiter, context.Context, string, int64) (*permits.Any, error){
		"AcquireWait": func(l *core.Limiter, ctx context.Context, key string, n int64) (*permits.Any, error) {
			return permits.OfPermit(n)(l.AcquireWait(ctx, key, n))
		},
		"ReserveWait": func(l *core.Limiter, ctx context.Context, key string, n int64) (*permits.Any, error) {
			return permits.OfReservation(n)(l.ReserveWait(ctx, key, n))
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			rate := core.MustNewMemory("test", core.TokenBucket(core.PerSecond(1), core.Burst(1)))
			queue := core.MustNewMemory("test", core.LeakyBucket(core.PerSecond(1), core.Burst(3)))
			begun := time.Now()
			for i := range 3 {
				if r, err := take(rate, t.Context(), "k", 1); err != nil || r.Release(t.Context()) != nil || time.Since(begun) != time.Duration(i)*time.Second {
					t.Errorf("%s %d: got error %v after %v, want none after %d s", name, i, err, time.Since(begun), i)
				}
			}
			begun = time.Now()
			for i := range 3 {
				if _, err := take(queue, t.Context(), "k", 1); err != nil || time.Since(begun) != time.Duration(i)*time.Second {
					t.Errorf("%s, Delay %d: got error %v after %v, want none after %d s", name, i, err, time.Since(begun), i)
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(100*time.Millisecond, cancel)
			if r, err := take(queue, ctx, "k", 1); r != nil || !errors.Is(err, context.Canceled) {
				t.Errorf("%s with a canceled context: got %v, %v; want nil and Canceled", name, r, err)
			}
			ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond) // the caller's turn would come after the deadline
			defer cancel()
			begun = time.Now()
			if r, err := take(queue, ctx, "k", 1); r != nil || !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) > 0 {
				t.Errorf("%s with a near deadline: got %v, %v after %v; want nil and DeadlineExceeded at once", name, r, err, time.Since(begun))
			}
			if got := left(t, queue); got[0] != 2 {
				t.Errorf("%s: %d places remain, want 2: callers that left kept theirs", name, got)
			}
		})
	}
}

// TestInFlightNeedsAnEnd calls Allow and Wait of a Limiter with InFlight, whose Result cannot free the slot: they must fail, with
// an error that names Acquire.
func TestInFlightNeedsAnEnd(t *testing.T) {
	t.Parallel()
	lim := core.MustNewMemory("test", core.LeakyBucket(core.PerDay(10), core.Burst(10)), core.InFlight(1))
	for name, f := range map[string]func() (core.Result, error){
		"Allow": func() (core.Result, error) { return lim.Allow(t.Context(), "k") },
		"Wait":  func() (core.Result, error) { return lim.Wait(t.Context(), "k") },
	} {
		if res, err := f(); err == nil || !strings.Contains(err.Error(), "Acquire") || res.Allowed {
			t.Errorf("%s: got %+v, %v; want an error that names Acquire", name, res, err)
		}
	}
	if got := left(t, lim); got[0] != 10 || got[1] != 1 {
		t.Errorf("%d units and slots remain, want 10 and 1", got)
	}
}

// TestClock decides with a Clock that shows a day of 1999, and jumps by hours between two calls.
func TestClock(t *testing.T) {
	t.Parallel()
	now := time.Date(1999, 12, 31, 22, 0, 0, 0, time.UTC)
	lim := core.MustNewMemory("test", core.FixedWindow(core.PerHour(100)), core.InFlight(2), core.Hold(10*time.Minute), core.Clock(func() time.Time { return now }))
	kept, _ := lim.Reserve(t.Context(), "k", 1)
	if !kept.Allowed || !kept.At.Equal(now) {
		t.Errorf("got %+v, want it admitted at %v", kept, now)
	}
	kept.Keep()
	late, _ := lim.Reserve(t.Context(), "k", 1)
	now = now.Add(5 * time.Second)
	ctx, cancel := kept.Context(t.Context())
	defer cancel()
	now = now.Add(30 * time.Minute) // the SlotTTL of 10 s and the hold are over, but slots and units that are in use are renewed late
	if got := left(t, lim); got[0] != 98 || got[1] != 0 || ctx.Err() != nil {
		t.Errorf("after the jump, %d units and slots remain, and the context's error is %v; want 98, 0 and none", got, ctx.Err())
	}
	_ = late.Settle(t.Context(), 0) // has no effect: the unit was charged when its hold expired
	_ = kept.Settle(t.Context(), 7)
	if got := left(t, lim); got[0] != 100-1-7 || got[1] != 2 {
		t.Errorf("after both are settled, %d units and slots remain, want 92 and 2", got)
	}
	now = now.Add(2 * time.Hour)
	if got := left(t, lim); got[0] != 100 {
		t.Errorf("in another window, %d units and slots remain, want 100 units", got)
	}
	now = now.Add(-24 * time.Hour) // the Limiter counts as if no time had passed
	if res, err := lim.Acquire(t.Context(), "k", 1); err != nil || !res.Allowed {
		t.Errorf("after the clock went back: got %+v, %v; want it admitted", res, err)
	}
}

// TestClockJumps checks a Clock that jumps further than a hold lasts: every slot and unit that is in use must be renewed, in any
// order.
func TestClockJumps(t *testing.T) {
	t.Parallel()
	now := time.Date(1999, 12, 31, 22, 0, 0, 0, time.UTC)
	lim := core.MustNewMemory("test", core.FixedWindow(core.PerDay(100)), core.InFlight(20), core.Hold(2*time.Second), core.Clock(func() time.Time { return now }))
	var all []*core.Reservation
	for i := range 20 {
		now = now.Add(time.Second)
		r, err := lim.Reserve(t.Context(), "k", 1)
		if err != nil || !r.Allowed {
			t.Fatalf("Reserve %d: got %v, %v; want it admitted", i, r, err)
		}
		if i%2 == 0 { // its hold must be renewed before the slots of earlier Reservations
			r.Keep()
		}
		all = append(all, r)
	}
	for range 3 {
		now = now.Add(time.Hour)
		if got := left(t, lim); got[0] != 80 || got[1] != 0 {
			t.Errorf("%d units and slots remain while 20 are in use, want 80 and 0", got)
		}
	}
	for _, r := range all {
		_ = r.Settle(t.Context(), 0)
	}
	if got := left(t, lim); got[0] != 90 || got[1] != 20 {
		t.Errorf("%d units and slots remain, want 90 and 20: the units of the Reservations with Keep are given back", got)
	}
}
