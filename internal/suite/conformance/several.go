package conformance

import (
	"slices"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
)

// severalCases are about several limits in one Limiter.
func severalCases() []testCase {
	return []testCase{
		{"Several/AllOrNone", allOrNone},
		{"Several/Describes", describes},
	}
}

// allOrNone denies by one limit of two: the other is not charged.
func allOrNone(t *testing.T, s Store) {
	lim := s.limiter(t, "both", core.TokenBucket(core.PerSecond(2)), core.FixedWindow(core.PerMinute(5)))
	wants := func(res core.Result, allowed bool, name string, remaining ...int64) {
		t.Helper()
		all := slices.Collect(res.All())
		if res.Allowed != allowed || res.Name != name || len(all) != 2 ||
			all[0].Remaining != remaining[0] || all[1].Remaining != remaining[1] {
			t.Errorf("got %+v of %+v; want allowed %v by %s, remaining %v", res, all, allowed, name, remaining)
		}
	}
	wants(allowN(t, lim, "k", 2), true, "token-1s", 0, 3)
	wants(allowN(t, lim, "k", 1), false, "token-1s", 0, 3)
	s.Advance(time.Second)
	wants(allowN(t, lim, "k", 2), true, "token-1s", 0, 1)
	s.Advance(time.Second)
	wants(allowN(t, lim, "k", 2), false, "fixed-1m", 2, 1)
	wants(allowN(t, lim, "k", 1), true, "fixed-1m", 1, 0)
	wants(allowN(t, lim, "k", 1), false, "fixed-1m", 1, 0)
}

// describes checks which limit the one Result describes.
func describes(t *testing.T, s Store) {
	lim := s.limiter(t, "describes",
		core.FixedWindow(core.PerMinute(5), core.Name("minute")),
		core.FixedWindow(core.PerHour(5), core.Name("hour")),
		core.FixedWindow(core.PerSecond(3), core.Name("second")))
	res := allowN(t, lim, "k", 0)
	if res.Name != "minute" || res.Limit != 5 {
		t.Errorf("all unused, want the first: %+v", res)
	}
	res = allowN(t, lim, "k", 4)
	if res.Allowed || res.Name != "second" || res.RetryAfter != core.Never {
		t.Errorf("never: %+v", res)
	}
	allowN(t, lim, "k", 3)
	res = allowN(t, lim, "k", 3)
	if res.Name != "hour" || res.RetryAfter != time.Hour {
		t.Errorf("all deny: %+v", res)
	}
	s.Advance(time.Second)
	res = allowN(t, lim, "k", 1)
	if res.Name != "hour" || res.Remaining != 1 || !res.Allowed {
		t.Errorf("tie of minute and hour: %+v", res)
	}
}
