package conformance

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
)

// algorithmCases are what every algorithm does.
func algorithmCases() []testCase {
	return slices.Concat(
		each("RetryAfterIsTrue", retryAfterIsTrue),
		each("Costs", costs),
		each("Peek", peekChangesNothing),
		each("Concurrent", concurrent),
		each("ClockBack", clockBack),
	)
}

// retryAfterIsTrue uses a key up, and tries again a microsecond before RetryAfter is
// over, and when it is.
func retryAfterIsTrue(t *testing.T, s Store, limit maker) {
	lim := s.limiter(t, "retry", limit(tenPerTen))
	for i := range int64(10) {
		res := allowN(t, lim, "k", 1)
		if !res.Allowed || res.Remaining != 9-i || res.Limit != 10 || res.RetryAfter != 0 {
			t.Fatalf("call %d: %+v", i+1, res)
		}
	}
	for range 3 {
		res := allowN(t, lim, "k", 1)
		if res.Allowed || res.Remaining != 0 || res.RetryAfter <= 0 || res.RetryAfter > 20*time.Second {
			t.Fatalf("over the limit: %+v", res)
		}
		s.Advance(res.RetryAfter - time.Microsecond)
		early := allowN(t, lim, "k", 1)
		if early.Allowed || early.RetryAfter != time.Microsecond {
			t.Errorf("a microsecond early: %+v", early)
		}
		s.Advance(time.Microsecond)
		if onTime := allowN(t, lim, "k", 1); !onTime.Allowed {
			t.Errorf("after RetryAfter: %+v", onTime)
		}
		for allowN(t, lim, "k", 1).Allowed {
		}
	}
	reset := peek(t, lim, "k").ResetAfter
	s.Advance(reset)
	want(t, peek(t, lim, "k"), true, 10, 0, 0)
}

func costs(t *testing.T, s Store, limit maker) {
	lim := s.limiter(t, "costs", limit(tenPerTen))
	want(t, allowN(t, lim, "k", 0), true, 10, 0, 0)
	tooMuch := allowN(t, lim, "k", 11)
	want(t, tooMuch, false, 10, core.Never, 0)
	want(t, allowN(t, lim, "k", 1<<62), false, 10, core.Never, 0)
	if res := allowN(t, lim, "k", 7); !res.Allowed || res.Remaining != 3 {
		t.Errorf("7 of 10: %+v", res)
	}
	if res := allowN(t, lim, "k", 4); res.Allowed || res.Remaining != 3 {
		t.Errorf("4 of 3: %+v", res)
	}
	if res := allowN(t, lim, "k", 3); !res.Allowed || res.Remaining != 0 {
		t.Errorf("3 of 3: %+v", res)
	}
	if res := allowN(t, lim, "k", 0); !res.Allowed || res.Remaining != 0 || res.RetryAfter != 0 {
		t.Errorf("0 of 0: %+v", res)
	}
}

func peekChangesNothing(t *testing.T, s Store, limit maker) {
	lim := s.limiter(t, "peek", limit(tenPerTen))
	for range 20 {
		want(t, peek(t, lim, "k"), true, 10, 0, 0)
	}
	after := allowN(t, lim, "k", 10)
	first := peek(t, lim, "k")
	want(t, first, false, 0, allowN(t, lim, "k", 1).RetryAfter, after.ResetAfter)
	if again := peek(t, lim, "k"); again != first {
		t.Errorf("a second Peek differs: %+v, before it %+v", again, first)
	}
}

// concurrent uses one key in 64 goroutines while the clock stands: exactly ten pass.
func concurrent(t *testing.T, s Store, limit maker) {
	lim := s.limiter(t, "concurrent", limit(tenPerTen))
	var admitted atomic.Int64
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for range 5 {
				if allowN(t, lim, "k", 1).Allowed {
					admitted.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if admitted.Load() != 10 {
		t.Errorf("admitted %d of 320, want exactly 10", admitted.Load())
	}
}

// clockBack steps the clock back after a key was used up: that refills nothing, and
// prolongs no denial by more than the step.
func clockBack(t *testing.T, s Store, limit maker) {
	if s.Redis == nil {
		t.Skip("the clock of a store in memory never steps back")
	}
	lim := s.limiter(t, "back", limit(tenPerTen))
	s.Advance(-time.Hour)
	allowN(t, lim, "k", 10)
	full := allowN(t, lim, "k", 1)
	s.Advance(-3 * time.Second)
	if res := allowN(t, lim, "k", 1); res.Allowed || res.Remaining != 0 {
		t.Errorf("after a step back: %+v", res)
	}
	s.Advance(3*time.Second + full.RetryAfter)
	if res := allowN(t, lim, "k", 1); !res.Allowed {
		t.Errorf("after the step and RetryAfter: %+v", res)
	}
}
