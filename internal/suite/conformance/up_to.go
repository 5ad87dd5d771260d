package conformance

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/limits"
)

// upToCases test AllowUpTo, which grants as many units as remain.
func upToCases() []testCase {
	return append(each("UpTo/Parts", upToParts), append(each("UpTo/Crowd", upToCrowd), testCase{"UpTo/Several", upToSeveral})...)
}

// upTo asks for up to n units. It checks how many are granted and, unless remaining is -1, how many remain.
func upTo(t *testing.T, lim *core.Limiter, key string, n, granted, remaining int64) core.Result {
	t.Helper()
	got, res, err := lim.AllowUpTo(t.Context(), key, n)
	if check.Need(t, err); got != granted || remaining >= 0 && res.Remaining != remaining || res.Allowed != (granted > 0) && n > 0 {
		t.Errorf("up to %d units: %d were granted, want %d, with %d remaining (-1: any): %+v", n, got, granted, remaining, res)
	}
	return res
}

// upToParts takes the units in parts. RetryAfter says when the ungranted rest is admitted: the rest is admitted then, and
// not before.
func upToParts(t *testing.T, s Store, limit maker) {
	lim := s.limiter(t, "upto", limit(tenPerTen))
	if limits.Named(limit(tenPerTen).Algorithm()).Kind.Delays {
		if _, _, err := lim.AllowUpTo(t.Context(), "k", 1); err == nil {
			t.Error("AllowUpTo on a queue succeeded, want an error")
		}
		return
	}
	if res := upTo(t, lim, "k", 7, 7, 3); res.RetryAfter != 0 {
		t.Errorf("all units were granted, and RetryAfter is %v, want 0", res.RetryAfter)
	}
	rest := upTo(t, lim, "k", 5, 3, 0)
	none := upTo(t, lim, "k", 2, 0, 0)
	if rest.RetryAfter <= 0 || none.RetryAfter != rest.RetryAfter {
		t.Errorf("the rest of 2 units has RetryAfter %v, and a call for 2 units %v; want both equal and above 0", rest.RetryAfter, none.RetryAfter)
	}
	upTo(t, lim, "k", 0, 0, 0)
	if s.Advance == nil {
		return
	}
	s.Advance(rest.RetryAfter)
	if res := admit(t, lim, "k", 2); !res.Allowed {
		t.Errorf("the rest after its RetryAfter of %v: got %+v, want it allowed", rest.RetryAfter, res)
	}
	if res := upTo(t, lim, "more", 25, 10, 0); res.RetryAfter <= 0 {
		t.Errorf("with 15 units not granted RetryAfter is %v, want more than 0", res.RetryAfter)
	}
}

// upToCrowd makes 16 callers take what they can while the clock stands: together never more than the limit, and in the end
// all of it.
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
				t.Errorf("%d units were granted of %d, error %v; want at most those, and no error", granted, n%13+1, err)
				return
			}
			taken.Add(granted)
			if granted == 0 && res.Remaining == 0 {
				return
			}
		}
	})
	if taken.Load() != 100 {
		t.Errorf("%d units were granted in all, want 100", taken.Load())
	}
}

// upToSeveral uses several limits: the limit with the fewest units left decides. During a ban nothing is granted, and
// AllowUpTo itself begins no ban.
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
		t.Errorf("during a ban: got %+v, want the ban reported", res)
	}
}
