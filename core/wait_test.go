package core_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redislimit/redislimit/core"
)

func memory(t *testing.T, opts ...core.Option) *core.Limiter {
	t.Helper()
	lim, err := core.NewMemory("test", opts...)
	if err != nil {
		t.Fatal(err)
	}
	return lim
}

// TestWaitInOrder has twenty callers wait for two units a second: they are admitted in
// the order in which they came, each at its exact instant.
func TestWaitInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lim := memory(t, core.TokenBucket(core.PerSecond(2), core.Burst(1)))
		start := time.Now()
		var mu sync.Mutex
		var order []int
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				if _, err := lim.Wait(t.Context(), "k"); err != nil {
					t.Error(err)
				}
				if want := time.Duration(i) * 500 * time.Millisecond; time.Since(start) != want {
					t.Errorf("waiter %d was admitted after %v, want %v", i, time.Since(start), want)
				}
				mu.Lock()
				defer mu.Unlock()
				order = append(order, i)
			})
			synctest.Wait() // until this one is in the queue
		}
		wg.Wait()
		for i, n := range order {
			if i != n {
				t.Fatalf("admitted in the order %v", order)
			}
		}
	})
}

// TestWaitHoldsDelay checks that Wait waits for a leaky bucket's Delay.
func TestWaitHoldsDelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lim := memory(t, core.LeakyBucket(core.PerSecond(4), core.Burst(8)))
		start := time.Now()
		for i := range 20 {
			if _, err := lim.WaitN(t.Context(), "k", 1); err != nil {
				t.Fatal(err)
			}
			if want := time.Duration(i) * 250 * time.Millisecond; time.Since(start) != want {
				t.Fatalf("call %d may go on after %v, want %v", i, time.Since(start), want)
			}
		}
	})
}

// TestWaitAtOnce has calls that cannot succeed in time: they end before any time has
// passed.
func TestWaitAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lim := memory(t, core.TokenBucket(core.PerMinute(60), core.Burst(2)))
		start := time.Now()
		wait := func(timeout time.Duration, key string, n int64, want error) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			if _, err := lim.WaitN(ctx, key, n); !errors.Is(err, want) {
				t.Errorf("WaitN(%q, %d) within %v: %v, want %v", key, n, timeout, err, want)
			}
			if d := time.Since(start); d != 0 {
				t.Errorf("WaitN(%q, %d) within %v took %v", key, n, timeout, d)
			}
		}
		wait(time.Hour, "k", 3, core.ErrNeverAdmitted)
		wait(time.Hour, "k", -1, core.ErrInvalidCost)
		wait(time.Hour, "", 1, core.ErrInvalidKey)
		wait(time.Hour, "k", 0, nil)
		wait(time.Hour, "k", 2, nil)
		wait(999*time.Millisecond, "k", 1, context.DeadlineExceeded)
		// The first in the queue waits for longer than the deadline of the next caller.
		go func() { _, _ = lim.Wait(t.Context(), "k") }()
		synctest.Wait()
		wait(999*time.Millisecond, "k", 1, context.DeadlineExceeded)
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := lim.Wait(cancelled, "k"); !errors.Is(err, context.Canceled) {
			t.Errorf("a cancelled context: %v", err)
		}
	})
}

// TestWaitBanned has the key of callers that wait be blocked, and then for longer: they go on when that is over, as fast as
// the limit says. So do those who were admitted before and wait for their Delay.
func TestWaitBanned(t *testing.T) {
	t.Parallel()
	for _, limit := range []core.Limit{
		core.TokenBucket(core.PerSecond(1), core.Burst(1)), core.GCRA(core.PerSecond(1), core.Burst(1)), core.FixedWindow(core.PerSecond(1)),
		core.SlidingWindowLog(core.PerSecond(1)), core.LeakyBucket(core.PerSecond(1), core.Burst(5)),
	} {
		synctest.Test(t, func(t *testing.T) {
			lim := memory(t, limit, core.Ban())
			begun := time.Now()
			var callers sync.WaitGroup
			var mu sync.Mutex
			var after []time.Duration
			for range 4 {
				callers.Go(func() {
					if _, err := lim.Wait(t.Context(), "k"); err != nil {
						t.Error(err)
					}
					mu.Lock()
					defer mu.Unlock()
					after = append(after, time.Since(begun))
				})
			}
			for _, d := range []time.Duration{2 * time.Second, 5 * time.Second} {
				time.Sleep(500 * time.Millisecond)
				if err := lim.Block(t.Context(), "k", d); err != nil {
					t.Error(err)
				}
			}
			callers.Wait()
			if want := []time.Duration{0, 6 * time.Second, 7 * time.Second, 8 * time.Second}; !slices.Equal(after, want) {
				t.Errorf("%v: admitted after %v, want %v", limit, after, want)
			}
		})
	}
}

// TestWaitLeaves has callers give up, as the first in the queue, in its middle and
// during their Delay: those behind move up, and nothing stays charged.
func TestWaitLeaves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lim := memory(t, core.TokenBucket(core.PerSecond(1), core.Burst(1)))
		if _, err := lim.Wait(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		var wg sync.WaitGroup
		var cancels []context.CancelFunc
		for i, want := range []error{context.Canceled, context.Canceled, nil, nil} {
			ctx, cancel := context.WithCancel(t.Context())
			cancels = append(cancels, cancel)
			wg.Go(func() {
				if _, err := lim.Wait(ctx, "k"); !errors.Is(err, want) {
					t.Errorf("waiter %d: %v, want %v", i, err, want)
				}
			})
			synctest.Wait()
		}
		time.Sleep(300 * time.Millisecond)
		cancels[1]()
		cancels[0]()
		wg.Wait()
		if d := time.Since(start); d != 2*time.Second {
			t.Errorf("two were admitted after %v, want 2s", d)
		}
		cancels[2]()
		cancels[3]()

		shaped := memory(t, core.LeakyBucket(core.PerSecond(1), core.Burst(5)))
		if _, err := shaped.WaitN(t.Context(), "k", 3); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2999*time.Millisecond)
		defer cancel()
		if _, err := shaped.Wait(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a deadline before the end of its Delay: %v", err)
		}
		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if _, err := shaped.Wait(ctx, "k"); !errors.Is(err, context.Canceled) {
			t.Errorf("canceled during its Delay: %v", err)
		}
		if res, err := shaped.Peek(t.Context(), "k"); err != nil || res.Remaining != 3 {
			t.Errorf("their charges were not refunded: %+v, %v", res, err)
		}
	})
}
