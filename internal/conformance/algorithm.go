package conformance

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
)

// algorithmCases are what every algorithm does, and then what only one does.
func algorithmCases() []testCase {
	cases := []testCase{
		{"FixedWindow/Example", fixedWindowExample},
		{"FixedWindow/Aligned", fixedWindowAligned},
		{"TokenBucket/Example", tokenBucketExample},
		{"TokenBucket/Burst", tokenBucketBurst},
		{"TokenBucket/NothingLost", tokenBucketNothingLost},
	}
	for _, kind := range kinds {
		cases = append(cases,
			testCase{kind.name + "/RetryAfterIsTrue", func(t *testing.T, s Store) { retryAfterIsTrue(t, s, kind.limit()) }},
			testCase{kind.name + "/Costs", func(t *testing.T, s Store) { costs(t, s, kind.limit()) }},
			testCase{kind.name + "/Peek", func(t *testing.T, s Store) { peekChangesNothing(t, s, kind.limit()) }},
			testCase{kind.name + "/Concurrent", func(t *testing.T, s Store) { concurrent(t, s, kind.limit()) }},
			testCase{kind.name + "/ClockBack", func(t *testing.T, s Store) { clockBack(t, s, kind.limit()) }},
		)
	}
	return cases
}

// retryAfterIsTrue uses a key up and comes back a microsecond too early, and on time.
func retryAfterIsTrue(t *testing.T, s Store, limit core.Limit) {
	lim := s.limiter(t, "retry", limit)
	for i := range int64(10) {
		res := allowN(t, lim, "k", 1)
		if !res.Allowed || res.Remaining != 9-i || res.Limit != 10 || res.RetryAfter != 0 {
			t.Fatalf("call %d: %+v", i+1, res)
		}
	}
	for range 3 {
		res := allowN(t, lim, "k", 1)
		if res.Allowed || res.Remaining != 0 || res.RetryAfter <= 0 || res.RetryAfter > 10*time.Second {
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

func costs(t *testing.T, s Store, limit core.Limit) {
	lim := s.limiter(t, "costs", limit)
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

func peekChangesNothing(t *testing.T, s Store, limit core.Limit) {
	lim := s.limiter(t, "peek", limit)
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

// concurrent lets 64 goroutines at one key: the clock stands, so exactly ten pass.
func concurrent(t *testing.T, s Store, limit core.Limit) {
	lim := s.limiter(t, "concurrent", limit)
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

// clockBack steps the clock back on a used-up key: that refills nothing, and
// locks nobody out for longer than the step.
func clockBack(t *testing.T, s Store, limit core.Limit) {
	lim := s.limiter(t, "back", limit)
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

func fixedWindowExample(t *testing.T, s Store) {
	lim := s.limiter(t, "fixed", core.FixedWindow(core.PerMinute(3)))
	want(t, allowN(t, lim, "k", 1), true, 2, 0, time.Minute)
	s.Advance(20 * time.Second)
	want(t, allowN(t, lim, "k", 2), true, 0, 0, 40*time.Second)
	want(t, allowN(t, lim, "k", 1), false, 0, 40*time.Second, 40*time.Second)
	s.Advance(40*time.Second - time.Microsecond)
	want(t, allowN(t, lim, "k", 1), false, 0, time.Microsecond, time.Microsecond)
	s.Advance(time.Microsecond)
	want(t, allowN(t, lim, "k", 1), true, 2, 0, time.Minute)
}

// fixedWindowAligned crosses the boundary that all keys share.
func fixedWindowAligned(t *testing.T, s Store) {
	lim := s.limiter(t, "aligned", core.FixedWindow(core.PerMinute(3), core.Aligned()))
	at := peek(t, lim, "k").At
	next := at.Truncate(time.Minute).Add(time.Minute)
	s.Advance(next.Sub(at) - 10*time.Second)
	want(t, allowN(t, lim, "k", 3), true, 0, 0, 10*time.Second)
	want(t, allowN(t, lim, "k", 1), false, 0, 10*time.Second, 10*time.Second)
	s.Advance(10 * time.Second)
	res := allowN(t, lim, "k", 1)
	want(t, res, true, 2, 0, time.Minute)
	if !res.At.Equal(next) {
		t.Errorf("decided at %v, want %v", res.At, next)
	}
}

func tokenBucketExample(t *testing.T, s Store) {
	lim := s.limiter(t, "tokens", core.TokenBucket(core.PerMinute(3)))
	want(t, allowN(t, lim, "k", 3), true, 0, 0, time.Minute)
	want(t, allowN(t, lim, "k", 1), false, 0, 20*time.Second, time.Minute)
	s.Advance(30 * time.Second)
	want(t, allowN(t, lim, "k", 1), true, 0, 0, 50*time.Second)
	want(t, allowN(t, lim, "k", 2), false, 0, 30*time.Second, 50*time.Second)
}

func tokenBucketBurst(t *testing.T, s Store) {
	small := s.limiter(t, "small", core.TokenBucket(core.PerSecond(10), core.Burst(2)))
	want(t, allowN(t, small, "k", 2), true, 0, 0, 200*time.Millisecond)
	want(t, allowN(t, small, "k", 3), false, 0, core.Never, 200*time.Millisecond)
	large := s.limiter(t, "large", core.TokenBucket(core.PerSecond(10), core.Burst(30)))
	want(t, allowN(t, large, "k", 30), true, 0, 0, 3*time.Second)
}

// tokenBucketNothingLost takes tokens of 60/7 s each, which no double holds, from
// a bucket that is never full: in a thousand refills not a microsecond may be
// lost or won.
func tokenBucketNothingLost(t *testing.T, s Store) {
	lim := s.limiter(t, "seventh", core.TokenBucket(core.PerMinute(7), core.Burst(2)))
	start := allowN(t, lim, "k", 2).At
	for i := int64(1); i <= 1000; i++ {
		due := start.Add(time.Duration(i*60_000_000+6) / 7 * time.Microsecond) // rounded up
		s.Advance(due.Sub(peek(t, lim, "k").At) - time.Microsecond)
		if res := allowN(t, lim, "k", 1); res.Allowed || res.RetryAfter != time.Microsecond {
			t.Fatalf("token %d, a microsecond early: %+v", i, res)
		}
		s.Advance(time.Microsecond)
		if res := allowN(t, lim, "k", 1); !res.Allowed {
			t.Fatalf("token %d, on time: %+v", i, res)
		}
	}
}
