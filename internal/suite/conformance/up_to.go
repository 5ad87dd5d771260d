package conformance

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/limits"
)

// upToCases are about AllowUpTo: as many units as there are.
func upToCases() []testCase {
	return append(each("UpTo/Parts", upToParts), append(each("UpTo/Crowd", upToCrowd), testCase{"UpTo/Several", upToSeveral})...)
}

// upTo asks for n units, and checks how many are granted and, unless it is -1, how many remain.
func upTo(t *testing.T, lim *core.Limiter, key string, n, granted, remaining int64) core.Result {
	t.Helper()
	got, res, err := lim.AllowUpTo(t.Context(), key, n)
	if check.Need(t, err); got != granted || remaining >= 0 && res.Remaining != remaining || res.Allowed != (granted > 0) && n > 0 {
		t.Errorf("up to %d: %d granted, want %d, and %d remaining: %+v", n, got, granted, remaining, res)
	}
	return res
}

// upToParts takes what there is, in parts. RetryAfter is when the rest is admitted: then it is, and not before.
func upToParts(t *testing.T, s Store, limit maker) {
	lim := s.limiter(t, "upto", limit(tenPerTen))
	if limits.Named(limit(tenPerTen).Algorithm()).Kind.Delays {
		if _, _, err := lim.AllowUpTo(t.Context(), "k", 1); err == nil {
			t.Error("a part of a place in a queue is granted")
		}
		return
	}
	if res := upTo(t, lim, "k", 7, 7, 3); res.RetryAfter != 0 {
		t.Errorf("all is granted, and the rest is admitted after %v", res.RetryAfter)
	}
	rest := upTo(t, lim, "k", 5, 3, 0)
	none := upTo(t, lim, "k", 2, 0, 0)
	if rest.RetryAfter <= 0 || none.RetryAfter != rest.RetryAfter {
		t.Errorf("the rest of 2 is admitted after %v, and 2 units after %v", rest.RetryAfter, none.RetryAfter)
	}
	upTo(t, lim, "k", 0, 0, 0)
	if s.Advance == nil {
		return
	}
	s.Advance(rest.RetryAfter)
	if res := admit(t, lim, "k", 2); !res.Allowed {
		t.Errorf("the rest is not admitted after %v: %+v", rest.RetryAfter, res)
	}
	if res := upTo(t, lim, "more", 25, 10, 0); res.RetryAfter <= 0 {
		t.Errorf("15 more are wanted, after %v", res.RetryAfter)
	}
}

// upToCrowd makes 16 callers take what they can while the clock stands: never more than the limit, and in
// the end all of it.
func upToCrowd(t *testing.T, s Store, limit maker) {
	if limits.Named(limit(tenPerTen).Algorithm()).Kind.Delays {
		return
	}
	lim := s.limiter(t, "crowd", limit(core.Per(100, 100*time.Second)))
	var taken atomic.Int64
	check.Together(16, func(i int) {
		for n := int64(i + 1); ; n++ {
			granted, res, err := lim.AllowUpTo(t.Context(), "k", n%13+1)
			if err != nil || granted > n%13+1 {
				t.Errorf("%d granted of %d: %v", granted, n%13+1, err)
				return
			}
			taken.Add(granted)
			if granted == 0 && res.Remaining == 0 {
				return
			}
		}
	})
	if taken.Load() != 100 {
		t.Errorf("%d granted in all, want 100", taken.Load())
	}
}

// upToSeveral has several limits: the one with the least left decides. A ban grants nothing, and none begins.
func upToSeveral(t *testing.T, s Store) {
	lim := s.limiter(t, "several", core.FixedWindow(core.PerMinute(10)), core.FixedWindow(core.PerHour(15)), core.Ban(time.Minute))
	upTo(t, lim, "k", 12, 10, -1)
	upTo(t, lim, "k", 12, 0, -1)
	if s.Advance != nil {
		s.Advance(time.Minute)
		upTo(t, lim, "k", 12, 5, -1)
	}
	check.Need(t, lim.Block(t.Context(), "k", time.Minute))
	if res := upTo(t, lim, "k", 1, 0, -1); !res.Banned {
		t.Errorf("a ban is not told of: %+v", res)
	}
}
