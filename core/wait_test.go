package core_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/coreaccess"
	"github.com/redislimit/redislimit/internal/inside"
)

// TestWaitBanned blocks the key of callers that wait, and then blocks it for longer. After the ban, the callers must be admitted at
// the rate of the limit. The same applies to callers that were admitted before the ban and wait for their Delay.
func TestWaitBanned(t *testing.T) {
	t.Parallel()
	for _, limit := range []core.Limit{
		core.TokenBucket(core.PerSecond(1), core.Burst(1)), core.GCRA(core.PerSecond(1), core.Burst(1)), core.FixedWindow(core.PerSecond(1)),
		core.SlidingWindowLog(core.PerSecond(1)), core.LeakyBucket(core.PerSecond(1), core.Burst(5)),
	} {
		synctest.Test(t, func(t *testing.T) {
			lim := core.MustNewMemory("test", limit, core.Ban())
			begun := time.Now()
			var callers sync.WaitGroup
			var mu sync.Mutex
			var after []time.Duration
			for range 4 {
				callers.Go(func() {
					if _, err := lim.Wait(t.Context(), "k"); err != nil {
						t.Errorf("%v: Wait: got error %v, want none", limit, err)
					}
					mu.Lock()
					defer mu.Unlock()
					after = append(after, time.Since(begun).Round(time.Millisecond))
				})
			}
			for _, d := range []time.Duration{2 * time.Second, 5 * time.Second} {
				time.Sleep(500 * time.Millisecond)
				if err := lim.Block(t.Context(), "k", d); err != nil {
					t.Errorf("%v: Block: got error %v, want none", limit, err)
				}
			}
			callers.Wait()
			if want := []time.Duration{0, 6 * time.Second, 7 * time.Second, 8 * time.Second}; !slices.Equal(after, want) {
				t.Errorf("%v: admitted after %v, want %v", limit, after, want)
			}
		})
	}
}

// slotsOfAll is a stub that answers instead of Redis: it counts the slots that several processes share.
type slotsOfAll struct {
	mu          sync.Mutex
	free, calls int

	roundTrip time.Duration // how long a call takes
}

func (s *slotsOfAll) Call(method, _ string, _ int64) (time.Duration, error) {
	time.Sleep(s.roundTrip)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	switch {
	case method == "Settle":
		s.free++
	case s.free == 0:
		return time.Second, nil
	default:
		s.free--
	}
	return 0, nil
}

// processes returns Limiters that stand for count processes, which share n slots.
func processes(t *testing.T, count, n int) ([]*core.Limiter, *slotsOfAll) {
	t.Helper()
	slots := &slotsOfAll{free: n}
	var all []*core.Limiter
	for range count {
		lim, err := inside.Core.NewStub("jobs", []core.Option{core.InFlight(max(1, int64(n)))}, slots)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, lim)
	}
	return all, slots
}

// TestSlotsAreShared lets more callers than there are slots wait, in two processes. The first process has all slots when the callers
// of the second process come: it must not keep the slots to itself.
func TestSlotsAreShared(t *testing.T) {
	t.Parallel()
	for _, work := range []time.Duration{5 * time.Millisecond, 50 * time.Millisecond, 200 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			const jobs, n = 6000, 2
			lasts := jobs / n * work
			all, _ := processes(t, 2, n)
			ctx, cancel := context.WithTimeout(t.Context(), lasts)
			defer cancel()
			var done [2]atomic.Int64
			var callers sync.WaitGroup
			for i, lim := range all {
				for range 5 {
					callers.Go(func() {
						for {
							r, err := lim.AcquireWait(ctx, "k", 1)
							if err != nil {
								return
							}
							time.Sleep(work)
							done[i].Add(1)
							_ = r.Release(ctx)
						}
					})
				}
				synctest.Wait()
			}
			callers.Wait()
			if a, b := done[0].Load(), done[1].Load(); min(a, b) < jobs/8 || a+b < jobs*9/10 {
				t.Errorf("jobs of %v: the processes did %d and %d of %d jobs, want %d or more in all and %d or more each", work, a, b, jobs, jobs*9/10, jobs/8)
			}
		})
	}
}

// TestWaitersShareRoundTrips sends fifty callers at once to a distant server that has enough slots for all of them. They must not
// take one round trip each.
func TestWaitersShareRoundTrips(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all, slots := processes(t, 1, 50)
		slots.roundTrip = 10 * time.Millisecond
		begun := time.Now()
		var callers sync.WaitGroup
		for range 50 {
			callers.Go(func() {
				if _, err := all[0].AcquireWait(t.Context(), "k", 1); err != nil {
					t.Errorf("AcquireWait: got error %v, want none", err)
				}
			})
		}
		callers.Wait()
		if took := time.Since(begun); took > 3*slots.roundTrip {
			t.Errorf("fifty callers took %v, want at most %v", took, 3*slots.roundTrip)
		}
	})
}

// distant is a stub for a distant server on which a key has five units left. None come back within an hour.
type distant struct{ used int64 }

func (d *distant) Call(_, _ string, n int64) (time.Duration, error) {
	time.Sleep(10 * time.Millisecond)
	if d.used+n > 5 {
		return time.Hour, nil
	}
	d.used += n
	return 0, nil
}

// TestFirstInLineGivesUp lets the first of several waiters, which would wait for an hour, give up. A caller that arrives while the
// next waiter asks the server must wait, too. It must not be turned away because the first waiter would have waited past the
// caller's deadline. The test would notice if the time of the next attempt outlived the waiter that it belonged to.
func TestFirstInLineGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := new(distant)
		lim, err := inside.Core.NewStub("line", []core.Option{core.FixedWindow(core.PerHour(10))}, server)
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		first, leave := context.WithCancel(t.Context())
		brief, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var callers sync.WaitGroup
		for _, c := range []struct {
			name  string
			ctx   context.Context
			n     int64
			after time.Duration // when the caller arrives
			took  time.Duration // how long it waits
			err   error
		}{
			{"the first", first, 10, 0, time.Second, context.Canceled},
			{"turned away", brief, 1, 500 * time.Millisecond, 0, context.DeadlineExceeded},
			{"the second", t.Context(), 1, 500 * time.Millisecond, 510 * time.Millisecond, nil},
			{"the third", brief, 1, 1005 * time.Millisecond, 15 * time.Millisecond, nil},
		} {
			callers.Go(func() {
				time.Sleep(c.after)
				_, err := lim.WaitN(c.ctx, "k", c.n)
				if took := time.Since(begun) - c.after; !errors.Is(err, c.err) || (err == nil) != (c.err == nil) || took != c.took {
					t.Errorf("%s: got error %v after %v, want %v after %v", c.name, err, took, c.err, c.took)
				}
			})
		}
		time.AfterFunc(time.Second, leave)
		callers.Wait()
		if server.used != 2 {
			t.Errorf("%d units are used, want 2", server.used)
		}
	})
}

// TestPollsAreBounded lets callers with many keys wait for a minute for slots that another process keeps. Each key may be polled
// about 20 times per second, and all keys together 1000 times per second.
func TestPollsAreBounded(t *testing.T) {
	t.Parallel()
	for keys, most := range map[int]int{1: 60 * 25, 2000: 60 * 1100} {
		synctest.Test(t, func(t *testing.T) {
			all, slots := processes(t, 1, 0)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var callers sync.WaitGroup
			for i := range keys {
				for range 2 {
					callers.Go(func() { _, _ = all[0].AcquireWait(ctx, strconv.Itoa(i), 1) })
				}
			}
			callers.Wait()
			if slots.calls > most || slots.calls < most/2 {
				t.Errorf("%d keys: %d calls, want %d to %d", keys, slots.calls, most/2, most)
			}
		})
	}
}

// TestUnlimitedWaitsOnlyForTheBan bans a key while one caller waits for units of the key. A caller whose limit is Unlimited must not
// queue behind the first caller: it waits only until the ban is over, or is ended by Unblock. This holds for Wait, for AcquireWait,
// and for a request of a middleware.
func TestUnlimitedWaitsOnlyForTheBan(t *testing.T) {
	t.Parallel()
	for name, wait := range map[string]func(ctx context.Context, free *core.Limiter) error{
		"Wait": func(ctx context.Context, free *core.Limiter) error {
			_, err := free.Wait(ctx, "k")
			return err
		},
		"AcquireWait": func(ctx context.Context, free *core.Limiter) error {
			_, err := free.AcquireWait(ctx, "k", 1)
			return err
		},
		"a request": func(ctx context.Context, free *core.Limiter) error {
			var res core.Result
			_, err := inside.Core.AcquireUpTo(ctx, free, coreaccess.Waiting{Key: "k", N: 1, UpTo: time.Minute, Most: 10}, &res)
			return err
		},
	} {
		for _, ended := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				lim := core.MustNewMemory("test", core.FixedWindow(core.PerHour(1)), core.Ban())
				free := derive(t, lim, core.Unlimited())
				if _, err := lim.Allow(t.Context(), "k"); err != nil {
					t.Fatal(err)
				}
				var waiting sync.WaitGroup
				ctx, leave := context.WithCancel(t.Context())
				waiting.Go(func() { _, _ = lim.Wait(ctx, "k") }) // until the window ends
				synctest.Wait()
				if err := lim.Block(t.Context(), "k", 10*time.Second); err != nil {
					t.Fatal(err)
				}
				want := 10 * time.Second
				if ended {
					want = 3 * time.Second
					time.AfterFunc(want, func() { _ = lim.Unblock(t.Context(), "k") })
				}
				begun := time.Now()
				err := wait(t.Context(), free)
				if took := time.Since(begun); err != nil || took != want {
					t.Errorf("%s: got error %v after %v, want none after %v", name, err, took, want)
				}
				leave()
				waiting.Wait()
			})
		}
	}
}
