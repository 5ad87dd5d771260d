package conformance

import (
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
)

// exampleCases are decisions of one algorithm each, computed by hand.
func exampleCases() []testCase {
	return []testCase{
		{"Example/FixedWindow", fixedWindowExample},
		{"Example/FixedWindowAligned", fixedWindowAligned},
		{"Example/SlidingWindowLog", logExample},
		{"Example/SlidingWindowLogInOneMicrosecond", logInOneMicrosecond},
		{"Example/SlidingWindowCounter", counterExample},
		{"Example/TokenBucket", tokenBucketExample},
		{"Example/TokenBucketBurst", tokenBucketBurst},
		{"Example/TokenBucketNothingLost", tokenBucketNothingLost},
		{"Example/LeakyBucket", leakyBucketExample},
		{"Example/GCRA", gcraExample},
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

// tokenBucketNothingLost takes tokens that take 60/7 s each, which a double cannot
// represent, from a bucket that is never full: over a thousand refills no microsecond
// may be lost or gained.
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

func logExample(t *testing.T, s Store) {
	lim := s.limiter(t, "log", core.SlidingWindowLog(core.PerMinute(4)))
	want(t, allowN(t, lim, "k", 1), true, 3, 0, time.Minute)
	s.Advance(10 * time.Second)
	want(t, allowN(t, lim, "k", 2), true, 1, 0, time.Minute)
	s.Advance(10 * time.Second)
	want(t, allowN(t, lim, "k", 2), false, 1, 40*time.Second, 50*time.Second)
	want(t, allowN(t, lim, "k", 3), false, 1, 50*time.Second, 50*time.Second)
	want(t, allowN(t, lim, "k", 1), true, 0, 0, time.Minute)
	want(t, allowN(t, lim, "k", 4), false, 0, time.Minute, time.Minute)
	s.Advance(40 * time.Second) // the first unit leaves exactly now
	want(t, allowN(t, lim, "k", 2), false, 1, 10*time.Second, 20*time.Second)
	want(t, allowN(t, lim, "k", 1), true, 0, 0, time.Minute)
}

// logInOneMicrosecond admits a thousand calls while the clock stands: each of them
// counts.
func logInOneMicrosecond(t *testing.T, s Store) {
	lim := s.limiter(t, "instant", core.SlidingWindowLog(core.PerMinute(3000)))
	for i := range int64(1000) {
		if res := allowN(t, lim, "k", 1); !res.Allowed || res.Remaining != 2999-i {
			t.Fatalf("call %d: %+v", i+1, res)
		}
	}
	if res := allowN(t, lim, "k", 1999); !res.Allowed || res.Remaining != 1 {
		t.Errorf("1999 at once: %+v", res)
	}
	s.Advance(time.Second)
	if res := allowN(t, lim, "k", 2); res.Allowed || res.Remaining != 1 || res.RetryAfter != 59*time.Second {
		t.Errorf("two of one: %+v", res)
	}
	if s.Redis != nil {
		if n := s.Redis.ZCard(t.Context(), "rl:instant:{k}:log-1m").Val(); n < 1001 || n > 1001+11 {
			t.Errorf("%d entries for a thousand charges of one unit and one of 1999", n)
		}
	}
}

func counterExample(t *testing.T, s Store) {
	lim := s.limiter(t, "counter", core.SlidingWindowCounter(core.PerMinute(10)))
	at := peek(t, lim, "k").At
	s.Advance(at.Truncate(time.Minute).Add(time.Minute).Sub(at)) // to the start of a window
	want(t, allowN(t, lim, "k", 10), true, 0, 0, 2*time.Minute)
	s.Advance(30 * time.Second)
	want(t, allowN(t, lim, "k", 1), false, 0, 36*time.Second, 90*time.Second) // 10 weigh 9 after 6 s of the next
	s.Advance(36*time.Second - time.Microsecond)
	want(t, allowN(t, lim, "k", 1), false, 0, time.Microsecond, 54*time.Second+time.Microsecond)
	s.Advance(time.Microsecond)
	want(t, allowN(t, lim, "k", 1), true, 0, 0, 114*time.Second)
	s.Advance(24 * time.Second) // half the window: 10*1/2 + 1
	want(t, peek(t, lim, "k"), true, 4, 0, 90*time.Second)
	want(t, allowN(t, lim, "k", 5), false, 4, 6*time.Second, 90*time.Second)
	want(t, allowN(t, lim, "k", 10), false, 4, 30*time.Second+6*time.Second*10, 90*time.Second)
}

func leakyBucketExample(t *testing.T, s Store) {
	lim := s.limiter(t, "leaky", core.LeakyBucket(core.PerSecond(4), core.Burst(3)))
	for i := range int64(3) {
		res := allowN(t, lim, "k", 1)
		want(t, res, true, 2-i, 0, time.Duration(i+1)*250*time.Millisecond)
		if res.Delay != time.Duration(i)*250*time.Millisecond {
			t.Errorf("call %d in the queue: Delay %v", i, res.Delay)
		}
	}
	res := allowN(t, lim, "k", 1)
	want(t, res, false, 0, 250*time.Millisecond, 750*time.Millisecond)
	if res.Delay != 0 {
		t.Errorf("denied with a Delay of %v", res.Delay)
	}
	s.Advance(350 * time.Millisecond)
	res = peek(t, lim, "k")
	want(t, res, true, 1, 0, 400*time.Millisecond)
	if res.Delay != 400*time.Millisecond {
		t.Errorf("Peek: Delay %v", res.Delay)
	}
	if res := allowN(t, lim, "k", 0); res.Delay != 0 {
		t.Errorf("a cost of 0: Delay %v", res.Delay)
	}
	for rate, burst := range map[core.Rate]int64{
		core.PerSecond(10): 10, core.PerMinute(10): 1, core.PerMinute(150): 2, core.Per(1, time.Millisecond): 1000,
	} {
		if got := core.LeakyBucket(rate).Burst(); got != burst {
			t.Errorf("the default burst at %v is %d, want %d", rate, got, burst)
		}
	}
}

func gcraExample(t *testing.T, s Store) {
	lim := s.limiter(t, "gcra", core.GCRA(core.PerMinute(3)))
	want(t, allowN(t, lim, "k", 3), true, 0, 0, time.Minute)
	want(t, allowN(t, lim, "k", 1), false, 0, 20*time.Second, time.Minute)
	s.Advance(30 * time.Second)
	want(t, allowN(t, lim, "k", 1), true, 0, 0, 50*time.Second)
	want(t, allowN(t, lim, "k", 2), false, 0, 30*time.Second, 50*time.Second)
}
