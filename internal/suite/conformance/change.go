package conformance

import (
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/limits"
)

// changeCases change limits whose keys are stored.
func changeCases() []testCase {
	return append(each("Change/Count", raisedAndLowered),
		testCase{"Change/Period", periodChanged},
		testCase{"Change/ManyTimes", changedManyTimes},
	)
}

// raisedAndLowered changes the count: units used stay used.
func raisedAndLowered(t *testing.T, s Store, limit maker) {
	if s.Redis == nil {
		t.Skip("no state outlives a Limiter in memory")
	}
	ten := s.limiter(t, "live", limit(core.PerMinute(10)))
	twenty := s.limiter(t, "live", limit(core.PerMinute(20)))
	three := s.limiter(t, "live", limit(core.PerMinute(3)))
	allowN(t, ten, "k", 10)
	if res := allowN(t, twenty, "k", 4); !res.Allowed || res.Remaining != 6 || res.Limit != 20 {
		t.Errorf("raised: %+v", res)
	}
	if res := allowN(t, ten, "k", 1); res.Allowed || res.Remaining != 0 || res.Limit != 10 {
		t.Errorf("lowered again: %+v", res)
	}
	if res := allowN(t, three, "k", 1); res.Allowed || res.Remaining != 0 || res.RetryAfter <= 0 {
		t.Errorf("lowered far: %+v", res)
	}
	if res := allowN(t, three, "k", 0); !res.Allowed || res.RetryAfter != 0 {
		t.Errorf("a cost of 0 over a lowered limit: %+v", res)
	}
	if res := allowN(t, twenty, "k", 6); !res.Allowed || res.Remaining != 0 {
		t.Errorf("raised once more: %+v", res)
	}
}

// periodChanged gives a named limit another period.
func periodChanged(t *testing.T, s Store) {
	if s.Redis == nil {
		t.Skip("no state outlives a Limiter in memory")
	}
	name := core.Name("quota")
	minute := s.limiter(t, "period", core.FixedWindow(core.PerMinute(10), name))
	hour := s.limiter(t, "period", core.FixedWindow(core.PerHour(10), name))
	allowN(t, minute, "fixed", 4)
	s.Advance(10 * time.Second)
	want(t, allowN(t, hour, "fixed", 1), true, 5, 0, 50*time.Second)
	s.Advance(50 * time.Second)
	want(t, allowN(t, hour, "fixed", 1), true, 9, 0, time.Hour)

	minute = s.limiter(t, "buckets", core.TokenBucket(core.PerMinute(10), name))
	hour = s.limiter(t, "buckets", core.TokenBucket(core.PerHour(10), name))
	allowN(t, minute, "token", 4)
	s.Advance(9 * time.Second) // one and a half tokens come back at the old rate
	want(t, allowN(t, hour, "token", 1), true, 6, 0, 21*time.Minute)
	want(t, peek(t, minute, "token"), true, 6, 0, 21*time.Second)

	aligned := s.limiter(t, "aligned", core.FixedWindow(core.PerMinute(10), name, core.Aligned()))
	allowN(t, aligned, "fixed", 4)
	aligned = s.limiter(t, "aligned", core.FixedWindow(core.PerHour(10), name, core.Aligned()))
	if res := peek(t, aligned, "fixed"); res.Remaining != 10 {
		t.Errorf("an aligned window of another period: %+v", res)
	}

	for kind, limit := range map[string]func(core.Rate, ...core.BucketOption) core.Limit{"gcra": core.GCRA, "token": core.TokenBucket} {
		minute := s.limiter(t, kind, limit(core.PerMinute(10), name))
		hour := s.limiter(t, kind, limit(core.PerHour(10), name))
		allowN(t, minute, "k", 4)
		s.Advance(9 * time.Second)
		want(t, allowN(t, hour, "k", 1), true, 6, 0, 21*time.Minute)
	}

	minute = s.limiter(t, "log", core.SlidingWindowLog(core.PerMinute(10), name))
	hour = s.limiter(t, "log", core.SlidingWindowLog(core.PerHour(10), name))
	allowN(t, minute, "k", 4)
	s.Advance(30 * time.Second)
	want(t, allowN(t, hour, "k", 1), true, 5, 0, time.Hour)
	want(t, peek(t, minute, "k"), true, 5, 0, time.Minute)

	minute = s.limiter(t, "counter", core.SlidingWindowCounter(core.PerMinute(10), name))
	hour = s.limiter(t, "counter", core.SlidingWindowCounter(core.PerHour(10), name))
	allowN(t, minute, "k", 4)
	if res := allowN(t, hour, "k", 1); res.Remaining != 9 {
		t.Errorf("a counter of another period: %+v", res)
	}
}

// changedManyTimes changes a half-used bucket again and again between rates without a
// common denominator: what is used becomes neither less nor more.
func changedManyTimes(t *testing.T, s Store) {
	if s.Redis == nil {
		t.Skip("no state outlives a Limiter in memory")
	}
	for _, v := range limits.All() {
		if !v.Kind.Bucket {
			continue
		}
		kind := v.Name
		var lims []*core.Limiter
		for _, count := range []int64{7, 1_000_000_000, 3, 999_999_937, 11} {
			lims = append(lims, s.limiter(t, kind, v.With(core.PerHour(count), limits.Settings{Burst: 100_000})))
		}
		allowN(t, lims[0], "k", 1000)
		s.Advance(12345678901 * time.Microsecond) // drains 24 units and a fraction
		before := peek(t, lims[0], "k")
		for range 100 {
			for _, lim := range lims {
				if res := allowN(t, lim, "k", 1); !res.Allowed {
					t.Fatalf("%s: %+v", kind, res)
				} else if err := lim.Refund(t.Context(), res); err != nil {
					t.Fatal(err)
				}
			}
		}
		after := peek(t, lims[0], "k")
		if after.Remaining != before.Remaining || after.ResetAfter < before.ResetAfter ||
			after.ResetAfter > before.ResetAfter+time.Microsecond {
			t.Errorf("%s: %+v after 500 changes, before %+v", kind, after, before)
		}
	}
}
