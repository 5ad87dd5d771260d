package conformance

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/limits"
)

// algorithmCases test behavior that all algorithms share. [Properties] compares their decisions with the model.
func algorithmCases() []testCase {
	return slices.Concat(
		eachWithSlots("Costs", costs),
		eachWithSlots("Concurrent", concurrent),
		each("Ends", ends),
		[]testCase{{"Describes", describes}},
	)
}

func costs(t *testing.T, s Store, limit maker) {
	lim := s.limiter(t, "costs", limit(tenPerTen))
	want(t, admit(t, lim, "k", 0), true, 10, 0, 0)
	want(t, admit(t, lim, "k", 11), false, 10, core.Never, 0)
	want(t, admit(t, lim, "k", 1<<62), false, 10, core.Never, 0)
	for _, c := range []struct {
		n, remaining int64
		allowed      bool
	}{{7, 3, true}, {4, 3, false}, {3, 0, true}, {0, 0, true}, {1, 0, false}} {
		if res := admit(t, lim, "k", c.n); res.Allowed != c.allowed || res.Remaining != c.remaining || c.allowed != (res.RetryAfter == 0) {
			t.Errorf("a cost of %d: got %+v, want allowed=%v, remaining %d, and a RetryAfter if and only if it is denied", c.n, res, c.allowed, c.remaining)
		}
	}
}

// concurrent makes 64 goroutines share one key while the clock stands: exactly ten of their 320 calls are admitted.
func concurrent(t *testing.T, s Store, limit maker) {
	lim := s.limiter(t, "concurrent", limit(tenPerTen))
	var admitted atomic.Int64
	check.Together(64, func(int) {
		for range 5 {
			if admit(t, lim, "k", 1).Allowed {
				admitted.Add(1)
			}
		}
	})
	if admitted.Load() != 10 {
		t.Errorf("%d of 320 calls were admitted, want exactly 10", admitted.Load())
	}
}

// ends tests each possible way to end charges and reservations, twice: only the first end counts. A second Limiter over the same
// keys shows how many units are used meanwhile. If everything was given back, nothing stays stored.
func ends(t *testing.T, s Store, limit maker) {
	lim := s.limiter(t, "ends", limit(tenPerTen))
	other := s.others(t, lim, limit(tenPerTen))
	queue := limits.Named(limit(tenPerTen).Algorithm()).Kind.Delays // a queue has no holds: a reservation is charged at once
	settled := func(actual int64) func(*testing.T, grant) {
		return func(t *testing.T, g grant) { settle(t, g, actual) }
	}
	for i, c := range []struct {
		name          string
		take          func(*testing.T, *core.Limiter, string, int64) grant
		n             int64
		end           func(*testing.T, grant)
		used, inQueue int64
	}{
		{"charged, cancelled", acquire, 6, cancel, 0, 0},
		{"charged, released", acquire, 6, release, 6, 6},
		{"held, cancelled", reserve, 6, cancel, 0, 0},
		{"held, released", reserve, 6, release, 6, 6},
		{"held, for less", reserve, 6, settled(2), 2, 6},
		{"held, for more", reserve, 6, settled(9), 9, 6},
		{"nothing", reserve, 0, settled(0), 0, 0},
		{"nothing, for more", reserve, 0, settled(3), 3, 0},
		{"charged nothing", acquire, 0, cancel, 0, 0},
		{"denied", acquire, 11, cancel, 0, 0},
		{"not held", reserve, 11, settled(4), 0, 0},
	} {
		if queue {
			c.used = c.inQueue
		}
		key, before := fmt.Sprint("k", i), int64(0)
		if queue { // the place at the head has begun, and is not given back: another call takes that place first
			before, c.used = 1, c.used+1
			allowN(t, lim, key, before)
		}
		g := c.take(t, lim, key, c.n)
		if g.Allowed {
			remains(t, other, key, 10-c.n-before)
		}
		for range 2 {
			c.end(t, g)
			if got := peek(t, other, key); got.Remaining != 10-c.used || c.used == 0 && got.ResetAfter > 0 {
				t.Errorf("%s: got %+v, want %d units used", c.name, got, c.used)
			}
		}
		if c.used == 0 && s.Redis != nil && slices.Contains(s.keys(t), "rl:ends:{"+key+"}:"+limits.Key(lim.Limits()[0])) {
			t.Errorf("%s: %v is still stored after everything was given back, want no key", c.name, s.dump(t))
		}
	}
}

// describes checks which of several limits the one Result of a decision describes.
func describes(t *testing.T, s Store) {
	lim := s.limiter(t, "describes",
		core.FixedWindow(core.PerMinute(5), core.LimitName("minute")),
		core.FixedWindow(core.PerHour(5), core.LimitName("hour")),
		core.FixedWindow(core.PerSecond(3), core.LimitName("second")))
	for _, c := range []struct {
		when      string
		n         int64
		name      string
		allowed   bool
		remaining int64
		retry     time.Duration
	}{
		{"a tie of unused limits: the first", 0, "minute", true, 5, 0},
		{"a cost that one limit never admits: that limit", 4, "second", false, 3, core.Never},
		{"admitted: the limit with the least left", 3, "second", true, 0, 0},
		{"all limits deny: the longest RetryAfter", 3, "hour", false, 2, time.Hour},
		{"a tie of minute and hour: the longer ResetAfter", 1, "hour", true, 1, 0},
	} {
		if c.n == 1 {
			s.Advance(time.Second)
		}
		if res := allowN(t, lim, "k", c.n); res.LimitName != c.name || res.Allowed != c.allowed || res.Remaining != c.remaining || res.RetryAfter != c.retry {
			t.Errorf("%s: got %+v, want limit %s, allowed %v, remaining %d, RetryAfter %v", c.when, res, c.name, c.allowed, c.remaining, c.retry)
		}
	}
}
