package core_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/limits"
)

// left returns how many units of each limit remain.
func left(t *testing.T, lim *core.Limiter) []int64 {
	t.Helper()
	return limits.Left(t, lim, "k")
}

// TestReservationEnds has each way to end what Acquire and Reserve admitted, of which only the first counts.
func TestReservationEnds(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	settle := func(n int64) func(*core.Reservation) error {
		return func(r *core.Reservation) error { return r.Settle(ctx, n) }
	}
	cancel := func(r *core.Reservation) error { return r.Cancel(ctx) }
	release := func(r *core.Reservation) error { return r.Release(ctx) }
	for name, c := range map[string]struct {
		reserve bool
		n       int64
		end     func(*core.Reservation) error
		charged int64 // of the window, afterwards
		err     error // then nothing has ended
	}{
		"Acquire, Release":            {false, 3, release, 3, nil},
		"Acquire, Cancel":             {false, 3, cancel, 0, nil},
		"Acquire, Settle of all":      {false, 3, settle(3), 3, nil},
		"Acquire, Settle of nothing":  {false, 3, settle(0), 0, nil},
		"Acquire, Settle of a part":   {false, 3, settle(2), 3, core.ErrInvalidCost},
		"Acquire, Settle of more":     {false, 3, settle(4), 3, core.ErrInvalidCost},
		"Reserve, Release":            {true, 3, release, 3, nil},
		"Reserve, Cancel":             {true, 3, cancel, 0, nil},
		"Reserve, Settle of a part":   {true, 3, settle(2), 2, nil},
		"Reserve, Settle of more":     {true, 3, settle(7), 7, nil},
		"Reserve, Settle below 0":     {true, 3, settle(-1), 3, core.ErrInvalidCost},
		"Reserve, Settle of too many": {true, 3, settle(1e9 + 1), 3, core.ErrInvalidCost},
		"Reserve of 0, Settle":        {true, 0, settle(7), 7, nil},
		"Reserve of 0, Release":       {true, 0, release, 0, nil},
		"Acquire of 0, Settle":        {false, 0, settle(7), 0, nil},
	} {
		lim := memory(t, core.FixedWindow(core.PerDay(10)), core.InFlight(5))
		take := lim.Acquire
		if c.reserve {
			take = lim.Reserve
		}
		r, err := take(ctx, "k", c.n)
		if err != nil || !r.Allowed {
			t.Fatalf("%s: %v, %v", name, r, err)
		}
		if got := left(t, lim); got[0] != 10-c.n || got[1] != 5-c.n {
			t.Errorf("%s: %d remain meanwhile", name, got)
		}
		slots := int64(5)
		if err := c.end(r); !errors.Is(err, c.err) {
			t.Errorf("%s: %v", name, err)
		} else if c.err != nil {
			slots -= c.n
		}
		if got := left(t, lim); got[0] != 10-c.charged || got[1] != slots {
			t.Errorf("%s: %d remain, want %d and %d", name, got, 10-c.charged, slots)
		}
		if c.err != nil {
			continue
		}
		var again sync.WaitGroup
		for _, end := range []func(*core.Reservation) error{cancel, release, settle(0), settle(c.n)} {
			again.Go(func() {
				if err := end(r); err != nil {
					t.Errorf("%s: again: %v", name, err)
				}
			})
		}
		again.Wait()
		if got := left(t, lim); got[0] != 10-c.charged || got[1] != slots {
			t.Errorf("%s: the first end did not count: %d remain", name, got)
		}
	}
}

// TestReservationEndsOnce has all ways to end one at the same time: one of them counts.
func TestReservationEndsOnce(t *testing.T) {
	t.Parallel()
	for range 200 {
		lim := memory(t, core.FixedWindow(core.PerDay(100)), core.InFlight(5))
		r, _ := lim.Reserve(t.Context(), "k", 5)
		var ends sync.WaitGroup
		for _, cost := range []int64{0, 7, 20} {
			ends.Go(func() { _ = r.Settle(t.Context(), cost) })
		}
		ends.Wait()
		if got := left(t, lim); got[0] != 100 && got[0] != 93 && got[0] != 80 || got[1] != 5 {
			t.Fatalf("%d remain: more than one end counted", got)
		}
	}
}

// TestReservationOfNothing has what there is nothing to end of.
func TestReservationOfNothing(t *testing.T) {
	t.Parallel()
	away := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	defer func() { _ = away.Close() }()
	lim := memory(t, core.FixedWindow(core.PerDay(1)), core.InFlight(1))
	open := core.MustNew(away, "open", core.FixedWindow(core.PerDay(1)), core.InFlight(1), core.FailOpen(), core.Logger(slog.New(slog.DiscardHandler)))
	defer func() { _ = open.Close() }()
	denied, err := lim.Acquire(t.Context(), "k", 2)
	if err != nil || denied.Allowed || denied.RetryAfter != core.Never {
		t.Errorf("%+v, %v", denied, err)
	}
	admitted, err := open.Reserve(t.Context(), "k", 1)
	if err != nil || !admitted.Allowed || admitted.Source != core.SourceNone {
		t.Errorf("%+v, %v", admitted, err)
	}
	for name, r := range map[string]*core.Reservation{"nil": nil, "a denial": denied, "that of FailOpen": admitted, "a zero one": {}} {
		r.Keep()
		ctx, cancel := r.Context(t.Context())
		if ctx != t.Context() {
			t.Errorf("%s: another context", name)
		}
		cancel()
		for _, err := range []error{r.Settle(ctx, 1), r.Settle(ctx, -1), r.Cancel(ctx), r.Release(ctx)} {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if got := left(t, lim); got[0] != 1 || got[1] != 1 {
		t.Errorf("%d remain", got)
	}
	if r, err := lim.Acquire(t.Context(), "", 1); r != nil || !errors.Is(err, core.ErrInvalidKey) {
		t.Errorf("%v, %v", r, err)
	}
	if r, err := lim.Reserve(t.Context(), "k", -1); r != nil || !errors.Is(err, core.ErrInvalidCost) {
		t.Errorf("%v, %v", r, err)
	}
}

// TestKeep has work that takes a hundred holds: with Keep what it cost is charged, and without it the
// estimate is.
func TestKeep(t *testing.T) {
	t.Parallel()
	for _, keep := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			lim := memory(t, core.FixedWindow(core.PerDay(100)), core.Hold(time.Second))
			defer func() { _ = lim.Close() }()
			r, _ := lim.Reserve(t.Context(), "k", 50)
			if keep {
				r.Keep()
				r.Keep()
			}
			time.Sleep(100 * time.Second)
			if got := left(t, lim); got[0] != 50 {
				t.Errorf("%d remain", got)
			}
			_ = r.Settle(t.Context(), 7)
			want := int64(50)
			if keep {
				want = 93
			}
			if got := left(t, lim); got[0] != want {
				t.Errorf("kept %v: %d remain, want %d", keep, got, want)
			}
		})
	}
}

// TestDropped drops Reservations that Keep renews: their units are charged, with one warning for all.
func TestDropped(t *testing.T) {
	t.Parallel()
	logger, logged := textLogger()
	lim := memory(t, core.FixedWindow(core.PerDay(100)), core.Hold(10*time.Millisecond), core.Logger(logger))
	defer func() { _ = lim.Close() }()
	func() {
		for range 3 {
			r, _ := lim.Reserve(t.Context(), "k", 1)
			r.Keep()
			r, _ = lim.Reserve(t.Context(), "k", 10)
			_ = r.Cancel(t.Context())
		}
	}()
	held := func() bool { // Reset keeps what is held
		_ = lim.Reset(t.Context(), "k")
		return left(t, lim)[0] < 100
	}
	for deadline := time.Now().Add(30 * time.Second); held() || logged() == ""; runtime.GC() {
		if time.Now().After(deadline) {
			t.Fatalf("%d remain; logged %q", left(t, lim), logged())
		}
		time.Sleep(time.Millisecond)
	}
	if n := strings.Count(logged(), "dropped without Settle"); n != 1 {
		t.Errorf("it is logged %d times: %s", n, logged())
	}
}

// TestDroppedUnits drops a Reservation of units that nobody renews, after others that were ended or have nothing to end:
// it is logged.
func TestDroppedUnits(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]core.Limit{
		"bucket": core.TokenBucket(core.PerDay(1e5)), "window": core.FixedWindow(core.PerDay(1e5)), "log": core.SlidingWindowLog(core.PerDay(1e5)),
	} {
		logger, logged := textLogger()
		lim := memory(t, limit, core.Logger(logger))
		collect := func(reserve func() *core.Reservation) {
			for range 8 {
				for range 5 {
					reserve()
				}
				runtime.GC()
			}
		}
		for _, end := range []func(r *core.Reservation){
			func(r *core.Reservation) { _ = r.Settle(t.Context(), 3) },
			func(r *core.Reservation) { _ = r.Cancel(t.Context()) },
			func(r *core.Reservation) { _ = r.Release(t.Context()) },
		} {
			collect(func() *core.Reservation {
				r, _ := lim.Reserve(t.Context(), "k", 2)
				end(r)
				r, _ = core.ReserveAll(t.Context(), 1, lim.On("k"), lim.On("l"))
				end(r)
				return r
			})
		}
		for _, n := range []int64{0, 1e7} { // nothing is held
			collect(func() *core.Reservation { r, _ := lim.Reserve(t.Context(), "k", n); return r })
		}
		collect(func() *core.Reservation { r, _ := lim.Acquire(t.Context(), "k", 1); return r })
		if logged() != "" {
			t.Errorf("%s: %s", name, logged())
		}
		for deadline := time.Now().Add(30 * time.Second); logged() == ""; time.Sleep(time.Millisecond) {
			collect(func() *core.Reservation { r, _ := lim.Reserve(t.Context(), "k", 1); return r })
			if time.Now().After(deadline) {
				t.Fatalf("%s: nothing is logged", name)
			}
		}
		if n := strings.Count(logged(), "dropped without Settle"); n != 1 {
			t.Errorf("%s: it is logged %d times: %s", name, n, logged())
		}
	}
}

// TestAcquireWait has callers wait for slots, for a rate and for their Delay.
func TestAcquireWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lim := memory(t, core.InFlight(1))
		defer func() { _ = lim.Close() }()
		begun := time.Now()
		first, err := lim.AcquireWait(t.Context(), "k", 1)
		if err != nil {
			t.Fatal(err)
		}
		var waiting sync.WaitGroup
		for i := range 3 { // each works for 10 ms: it is woken at once
			waiting.Go(func() {
				r, err := lim.AcquireWait(t.Context(), "k", 1)
				if took, want := time.Since(begun), time.Duration(i+1)*10*time.Millisecond; err != nil || took != want {
					t.Errorf("waiter %d: %v after %v, want %v", i, err, took, want)
				}
				time.Sleep(10 * time.Millisecond)
				_ = r.Release(t.Context())
			})
			synctest.Wait()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer cancel()
		if r, err := lim.AcquireWait(ctx, "k", 1); r != nil || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, %v", r, err)
		}
		time.Sleep(5 * time.Millisecond)
		_ = first.Release(t.Context())
		waiting.Wait()
		if r, err := lim.AcquireWait(t.Context(), "k", 2); r != nil || !errors.Is(err, core.ErrNeverAdmitted) {
			t.Errorf("%v, %v", r, err)
		}
	})
	for name, take := range map[string]func(*core.Limiter, context.Context, string, int64) (*core.Reservation, error){
		"AcquireWait": (*core.Limiter).AcquireWait, "ReserveWait": (*core.Limiter).ReserveWait,
	} {
		synctest.Test(t, func(t *testing.T) {
			rate := memory(t, core.TokenBucket(core.PerSecond(1), core.Burst(1)))
			queue := memory(t, core.LeakyBucket(core.PerSecond(1), core.Burst(3)))
			begun := time.Now()
			for i := range 3 {
				if r, err := take(rate, t.Context(), "k", 1); err != nil || r.Release(t.Context()) != nil || time.Since(begun) != time.Duration(i)*time.Second {
					t.Errorf("%s %d: %v after %v", name, i, err, time.Since(begun))
				}
			}
			begun = time.Now()
			for i := range 3 {
				if _, err := take(queue, t.Context(), "k", 1); err != nil || time.Since(begun) != time.Duration(i)*time.Second {
					t.Errorf("%s, Delay %d: %v after %v", name, i, err, time.Since(begun))
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(100*time.Millisecond, cancel)
			if r, err := take(queue, ctx, "k", 1); r != nil || !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v, %v", name, r, err)
			}
			if got := left(t, queue); got[0] != 2 {
				t.Errorf("%s: who left kept the place: %d remain", name, got)
			}
		})
	}
}

// TestInFlightNeedsAnEnd has the methods that return no Reservation.
func TestInFlightNeedsAnEnd(t *testing.T) {
	t.Parallel()
	lim := memory(t, core.LeakyBucket(core.PerDay(10), core.Burst(10)), core.InFlight(1))
	for name, f := range map[string]func() (core.Result, error){
		"Allow":  func() (core.Result, error) { return lim.Allow(t.Context(), "k") },
		"AllowN": func() (core.Result, error) { return lim.AllowN(t.Context(), "k", 1) },
		"Wait":   func() (core.Result, error) { return lim.Wait(t.Context(), "k") },
		"WaitN":  func() (core.Result, error) { return lim.WaitN(t.Context(), "k", 1) },
	} {
		if res, err := f(); err == nil || !strings.Contains(err.Error(), "Acquire") || res.Allowed {
			t.Errorf("%s: %+v, %v", name, res, err)
		}
	}
	if got := left(t, lim); got[0] != 10 || got[1] != 1 {
		t.Errorf("%d remain", got)
	}
}

// TestClock replays another day, in which an hour passes between two calls.
func TestClock(t *testing.T) {
	t.Parallel()
	now := time.Date(1999, 12, 31, 22, 0, 0, 0, time.UTC)
	lim := memory(t, core.FixedWindow(core.PerHour(100)), core.InFlight(2), core.Hold(10*time.Minute), core.Clock(func() time.Time { return now }))
	kept, _ := lim.Reserve(t.Context(), "k", 1)
	if !kept.Allowed || !kept.At.Equal(now) {
		t.Errorf("%+v", kept)
	}
	kept.Keep()
	late, _ := lim.Reserve(t.Context(), "k", 1)
	now = now.Add(5 * time.Second)
	ctx, cancel := kept.Context(t.Context())
	defer cancel()
	now = now.Add(30 * time.Minute) // the slots' 10 s and the hold are over: what is in use is renewed late
	if got := left(t, lim); got[0] != 98 || got[1] != 0 || ctx.Err() != nil {
		t.Errorf("%d remain, %v", got, ctx.Err())
	}
	_ = late.Settle(t.Context(), 0) // it was charged when its hold expired
	_ = kept.Settle(t.Context(), 7)
	if got := left(t, lim); got[0] != 100-1-7 || got[1] != 2 {
		t.Errorf("%d remain", got)
	}
	now = now.Add(2 * time.Hour)
	if got := left(t, lim); got[0] != 100 {
		t.Errorf("%d remain in another window", got)
	}
	now = now.Add(-24 * time.Hour) // no time has passed
	if res, err := lim.Acquire(t.Context(), "k", 1); err != nil || !res.Allowed {
		t.Errorf("%+v, %v", res, err)
	}
}

// TestClockJumps has a clock go on by more than what is held lasts: all that is in use is renewed, in whatever order.
func TestClockJumps(t *testing.T) {
	t.Parallel()
	now := time.Date(1999, 12, 31, 22, 0, 0, 0, time.UTC)
	lim := memory(t, core.FixedWindow(core.PerDay(100)), core.InFlight(20), core.Hold(2*time.Second), core.Clock(func() time.Time { return now }))
	var all []*core.Reservation
	for i := range 20 {
		now = now.Add(time.Second)
		r, err := lim.Reserve(t.Context(), "k", 1)
		if err != nil || !r.Allowed {
			t.Fatal(r, err)
		}
		if i%2 == 0 { // it is to be renewed before the slot of one that came earlier
			r.Keep()
		}
		all = append(all, r)
	}
	for range 3 {
		now = now.Add(time.Hour)
		if got := left(t, lim); got[0] != 80 || got[1] != 0 {
			t.Errorf("%d remain while 20 are in use", got)
		}
	}
	for _, r := range all {
		_ = r.Settle(t.Context(), 0)
	}
	if got := left(t, lim); got[0] != 90 || got[1] != 20 {
		t.Errorf("%d remain, want that all is given back that was kept", got)
	}
}

// TestOptionsThatSayNothing has options that would be ignored, or are given twice.
func TestOptionsThatSayNothing(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer func() { _ = client.Close() }()
	rate, limit := core.PerMinute(10), core.FixedWindow(core.PerMinute(10))
	for want, opts := range map[string][]core.Option{
		"Burst(5) and Burst(6): give it once":                {core.TokenBucket(rate, core.Burst(5), core.Burst(6))},
		`Name("a") and Name("b"): give it once`:              {core.TokenBucket(rate, core.Name("a"), core.Name("b"))},
		"Aligned() and Aligned(): give it once":              {core.FixedWindow(rate, core.Aligned(), core.Aligned())},
		"SlotTTL(1s) and SlotTTL(2s): give it once":          {core.InFlight(1, core.SlotTTL(time.Second), core.SlotTTL(2*time.Second))},
		"Hold(1s) and Hold(2s): give it once":                {limit, core.Hold(time.Second), core.Hold(2 * time.Second)},
		"MaxBatch(1) and MaxBatch(2): give it once":          {limit, core.MaxBatch(1), core.MaxBatch(2)},
		"Hold(1s): no limit holds units: slots of InFlight":  {core.InFlight(1), core.Hold(time.Second)},
		"have a SlotTTL, and a LeakyBucket has places":       {core.LeakyBucket(rate), core.InFlight(1), core.Hold(time.Second)},
		"Entries(5): an option of NewMemory and FailLocal":   {limit, core.Entries(5), core.FailOpen()},
		"Clock: an option of NewMemory":                      {limit, core.Clock(time.Now)},
		"Clock(nil): want a function":                        {limit, core.Clock(nil)},
		"Lease(20ms): limit in_flight 1 cannot be leased":    {limit, core.InFlight(1), core.Lease(20 * time.Millisecond)},
		"Ban([1h0m0s]): a denial by InFlight bans nobody":    {core.InFlight(1), core.Ban(time.Hour)},
		"limit Limit{}: make it with":                        {core.Limit{}, core.Hold(time.Second), core.Ban(time.Hour)},
		"Ban([1h0m0s]) and Ban([]): give it once":            {limit, core.Ban(time.Hour), core.Ban()},
		"Ban([1m0s 1s]): allowed is 1ms to 8760h0m0s, and":   {limit, core.Ban(time.Minute, time.Second)},
		"Ban([0s]): allowed is 1ms to 8760h0m0s, and none":   {limit, core.Ban(0)},
		"Ban([1h0m0s 8760h0m0.000000001s]): allowed is 1ms":  {limit, core.Ban(time.Hour, 365*24*time.Hour+1)},
		"m0s]): allowed are 100 levels":                      {limit, core.Ban(slices.Repeat([]time.Duration{time.Minute}, 101)...)},
		"Processes(2): an option of FailLocal, not of FailO": {limit, core.Processes(2), core.FailOpen()},
	} {
		lim, err := core.New(client, "api", opts...)
		if err == nil || lim != nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `limiter "api"`) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	for _, opts := range [][]core.Option{ // a service's own list, in its tests
		{limit, core.Entries(5), core.FailOpen()}, {limit, core.InFlight(1), core.Hold(time.Second)}, {limit, core.Clock(time.Now), core.MaxBatch(2), core.Lease(time.Second)},
	} {
		if _, err := core.NewMemory("api", opts...); err != nil {
			t.Error(err)
		}
	}
}

// TestResultSize bounds what is copied for each decision.
func TestResultSize(t *testing.T) {
	t.Parallel()
	if size := unsafe.Sizeof(core.Result{}); size >= 150 {
		t.Errorf("a Result has %d bytes", size)
	}
}
