package conformance

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/limits"
)

// withCases test decisions by limits whose numbers differ from the Limiter's own.
func withCases() []testCase {
	return slices.Concat(
		each("With/Batches", withBatches),
		eachWithSlots("With/Reserve", withReserve),
		each("With/Forced", withForced),
		each("With/Drains", withDrains),
		each("With/Expired", withExpired),
		[]testCase{{"With/Fresh", withFresh}},
	)
}

func with(t *testing.T, lim *core.Limiter, limits ...core.Limit) *core.Limiter {
	t.Helper()
	l, err := lim.With(limits...)
	check.Need(t, err)
	return l
}

// withReserve keeps the last 3 of 10 units for important calls: other calls use the same key with a limit of 7.
func withReserve(t *testing.T, s Store, limit maker) {
	lim, smaller := s.limiter(t, "with", limit(tenPerTen)), limit(core.Per(7, 10*time.Second))
	bucket := limits.Named(smaller.Algorithm())
	if bucket.Kind.Debt {
		smaller = bucket.With(tenPerTen, limits.Settings{Burst: 7})
	}
	shed := with(t, lim, smaller)
	take := func(of *core.Limiter, allowed bool, left int64) {
		t.Helper()
		g := acquire(t, of, "k", 1)
		if g.Allowed != allowed || g.Remaining != left {
			t.Errorf("by %v: got %+v, want Allowed %v and %d remaining", of.Limits(), g.Result, allowed, left)
		}
		if g.Allowed {
			t.Cleanup(func() { _ = g.Release(context.Background()) })
		}
	}
	for left := int64(6); left >= 0; left-- {
		take(shed, true, left)
	}
	for left := int64(2); left >= 0; left-- {
		take(shed, false, 0)
		take(lim, true, left)
	}
	take(lim, false, 0)
	if bucket.Kind.Debt { // the first units that come back are for important calls
		s.Advance(3 * time.Second)
		take(shed, false, 0)
		take(lim, true, 2)
	}
}

// withForced makes a small limit end its hold after a limit ten times as large has used more units than the small one could
// admit. The used units stay used, and in a bucket they drain at the rate at which they were charged.
func withForced(t *testing.T, s Store, limit maker) {
	kind := limits.Named(limit(tenPerTen).Algorithm()).Kind
	if kind.Delays {
		t.Skip("a queue has no holds")
	}
	big := s.limiter(t, "forced", limit(core.PerDay(1000)))
	small := with(t, big, limit(core.PerDay(100)))
	for end, left := range map[string]int64{"settled": 99, "released": 100, "expired": 99} {
		held := reserve(t, small, end, 1)
		allowN(t, big, end, 900)
		switch end {
		case "settled":
			settle(t, held, 1)
		case "released":
			settle(t, held, 0)
		case "expired":
			s.Advance(75 * time.Second)
			peek(t, small, end)
		}
		s.Advance(time.Second) // a charge at the end of the hold may be rounded up to a microsecond
		remains(t, big, end, left)
		res := allowN(t, small, end, 1)
		if res.Allowed || kind.Debt && res.RetryAfter > 802*24*time.Hour/1000 { // 802 units must drain at the larger rate
			t.Errorf("%s: got %+v, want a denial until the units have drained at the larger rate", end, res)
		}
	}
	if kind.Debt { // units that the small limit could have admitted drain at its own rate, also without an ordinary decision
		allowN(t, big, "k", 50)
		settle(t, reserve(t, small, "k", 1), 1)
		if res := peek(t, small, "k"); res.Remaining < 48 || res.ResetAfter < 50*24*time.Hour/100 {
			t.Errorf("got %+v, want at least 48 remaining, and a ResetAfter by the small limit's rate", res)
		}
	}
}

// withDrains changes the rate of a bucket that is used up. The used units drain at the rate before, until another charge.
func withDrains(t *testing.T, s Store, limit maker) {
	kind := limits.Named(limit(tenPerTen).Algorithm())
	if !kind.Kind.Debt || kind.Kind.Delays {
		t.Skip("only a bucket drains at a rate; a queue keeps the delays that it promised")
	}
	named := limits.Settings{Name: "plan"}
	hour := s.limiter(t, "drains", kind.With(core.PerHour(10_000), named))
	minute := with(t, hour, kind.With(core.PerMinute(100), named))
	million := with(t, hour, kind.With(core.PerHour(1_000_000), named))
	daily := with(t, hour, kind.With(core.PerDay(1), limits.Settings{Name: "plan", Burst: 1000}))
	about := func(what string, got, want time.Duration) {
		t.Helper()
		if got < want || got > want+4*time.Microsecond {
			t.Errorf("%s is %v, want %v and at most 4µs more", what, got, want)
		}
	}
	for _, c := range []struct {
		key           string
		before, after *core.Limiter
		all, n        int64
		retry, reset  time.Duration // of a call of n units after all units are used
	}{
		{"lowered", hour, minute, 10_000, 1, 9901 * time.Hour / 10_000, time.Hour},
		{"raised", minute, hour, 100, 10_000, time.Minute, time.Minute},
		{"lowered by far", million, daily, 1_000_000, 1, 999_001 * time.Hour / 1_000_000, time.Hour}, // at the daily rate the bucket would take 2,700 years
	} {
		allowN(t, c.before, c.key, c.all)
		res := allowN(t, c.after, c.key, c.n)
		about(c.key+": RetryAfter", res.RetryAfter, c.retry)
		about(c.key+": ResetAfter", res.ResetAfter, c.reset)
		early := 5 * time.Microsecond
		s.Advance(res.RetryAfter - early)
		if res := allowN(t, c.after, c.key, c.n); res.Allowed {
			t.Errorf("%s, 5µs before RetryAfter: got %+v, want a denial", c.key, res)
		}
		s.Advance(early)
		if res := allowN(t, c.after, c.key, c.n); !res.Allowed {
			t.Errorf("%s, after RetryAfter: got %+v, want it allowed", c.key, res)
		}
	}
}

// withBatches makes many callers at once charge, reserve and settle by limits of many numbers.
func withBatches(t *testing.T, s Store, limit maker) {
	lim := s.limiter(t, "with", limit(core.PerHour(100)), limits.Hold(time.Minute, limit(core.PerHour(100))))
	queue := limits.Named(limit(tenPerTen).Algorithm()).Kind.Delays
	var all sync.WaitGroup
	for i := range int64(40) {
		all.Go(func() {
			key, l := fmt.Sprint("k", i), with(t, lim, limit(core.PerHour(100+i)))
			for range 2 {
				all.Go(func() {
					if res := allowN(t, l, key, 1+i%2); !res.Allowed || res.Limit != 100+i {
						t.Errorf("caller %d: got %+v, want it allowed by a limit of %d", i, res, 100+i)
					}
				})
			}
			if g := reserve(t, l, key, 50); !queue {
				settle(t, g, 20)
			} else if !g.Allowed {
				t.Errorf("caller %d: a reservation got %+v, want it allowed", i, g.Result)
			}
		})
	}
	all.Wait()
	for i := range int64(40) {
		left := 100 + i - 2*(1+i%2) - 20
		if queue {
			left -= 30
		}
		remains(t, with(t, lim, limit(core.PerHour(100+i))), fmt.Sprint("k", i), left)
	}
}

// withExpired lets a hold of a fast limit expire, and then decides by a slow limit of the same name. The units that the
// hold charges drain at the rate at which they were reserved, whichever limit decides.
func withExpired(t *testing.T, s Store, limit maker) {
	kind := limits.Named(limit(tenPerTen).Algorithm())
	if !kind.Kind.Debt || kind.Kind.Delays {
		t.Skip("only a bucket keeps its key when its rate changes")
	}
	named := func(r core.Rate) core.Limit { return kind.With(r, limits.Settings{Name: "plan", Burst: r.Count()}) }
	fast := s.limiter(t, "expired", named(core.PerSecond(1000)), core.Hold(time.Second))
	slow := with(t, fast, named(core.Per(10, 10*time.Minute)))
	for key, after := range map[string]time.Duration{"soon": 1250 * time.Millisecond, "late": 3 * time.Second} {
		reserve(t, fast, key, 1000)
		s.Advance(after)
		allowN(t, slow, key, 1)
		if res := allowN(t, fast, key, 500); !res.Allowed && res.RetryAfter > time.Second {
			t.Errorf("%s: got %+v, want it allowed within a second: 1000 units drain at 1000 a second", key, res)
		}
		s.Advance(time.Second)
		if res := allowN(t, fast, key, 500); !res.Allowed {
			t.Errorf("%s, a second later: got %+v, want it allowed", key, res)
		}
	}
	// Units that both limits have reserved drain at the faster rate, because only one instant is stored at which all have drained.
	reserve(t, fast, "both", 5)
	reserve(t, slow, "both", 5)
	s.Advance(1250 * time.Millisecond)
	if res := peek(t, slow, "both"); res.ResetAfter > time.Second {
		t.Errorf("with holds of both limits: got %+v, want ResetAfter at most 1s, by the faster rate", res)
	}
}

// withFresh changes the algorithm, the form, the time zone and the period of a named limit again and again. Each form has a
// count of its own, which is found again and is never shortened by another form.
func withFresh(t *testing.T, s Store) {
	name := core.LimitName("plan")
	all := []core.Limit{
		core.FixedWindow(core.Per(3, 6*time.Hour), name), core.FixedWindow(core.PerDay(5), name),
		core.FixedWindow(core.Per(3, 6*time.Hour), core.Aligned(), name), core.FixedWindow(core.PerDay(5), core.Aligned(), name),
		core.FixedWindow(core.PerDay(5), core.In("Europe/Berlin"), name), core.FixedWindow(core.PerDay(5), core.In("Asia/Tokyo"), name),
		core.FixedWindow(core.PerWeek(5), name), core.FixedWindow(core.PerMonth(5), name),
		core.SlidingWindowLog(core.Per(3, 6*time.Hour), name), core.SlidingWindowLog(core.PerDay(5), name),
		core.SlidingWindowCounter(core.Per(3, 6*time.Hour), name), core.SlidingWindowCounter(core.PerDay(5), name),
		core.TokenBucket(core.PerDay(5), name), core.LeakyBucket(core.PerDay(5), core.Burst(5), name),
	}
	lim := s.limiter(t, "fresh", all[0])
	for range 4 { // the first round uses all units of each form
		for i, each := range all {
			l := with(t, lim, each)
			for n := each.Capacity(); n > 0; n-- {
				allowN(t, l, "k", 1)
			}
			if res := allowN(t, l, "k", 1); res.Allowed {
				t.Errorf("%v, used up beside the other forms: got %+v, want a denial", all[i], res)
			}
			s.Advance(time.Second)
		}
	}
	for i, each := range all {
		if res := peek(t, with(t, lim, each), "k"); res.Remaining > 0 {
			t.Errorf("%v: got %+v, want 0 remaining, as all units are used", all[i], res)
		}
	}
	// A token bucket and GCRA share their count, because they are the same algorithm.
	if res := peek(t, with(t, lim, core.GCRA(core.PerDay(5), name)), "k"); res.Remaining > 0 {
		t.Errorf("as GCRA: got %+v, want the 0 remaining of the token bucket", res)
	}
}
