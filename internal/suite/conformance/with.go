package conformance

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/limits"
)

// withCases decide by limits of other numbers than those of the Limiter.
func withCases() []testCase {
	return slices.Concat(
		each("With/Change", withChange),
		each("With/Batches", withBatches),
		each("With/Held", withHeld),
		[]testCase{{"With/Several", withSeveral}, {"With/Period", withPeriod}},
	)
}

func with(t *testing.T, lim *core.Limiter, limits ...core.Limit) *core.Limiter {
	t.Helper()
	l, err := lim.With(limits...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// withChange has the numbers of a key change: what it has used stays used.
func withChange(t *testing.T, s Store, limit maker) {
	lim := s.limiter(t, "with", limit(tenPerTen))
	twenty, five := with(t, lim, limit(core.Per(20, 10*time.Second))), with(t, lim, limit(core.Per(5, 10*time.Second)))
	allowN(t, lim, "k", 4)
	if res := allowN(t, twenty, "k", 10); !res.Allowed || res.Limit != 20 || res.Remaining != 6 {
		t.Errorf("4 of 20 used, and 10 more: %+v", res)
	}
	if res := allowN(t, five, "k", 1); res.Allowed || res.Limit != 5 || res.Remaining != 0 {
		t.Errorf("14 of 5 used: %+v", res)
	}
	if res := allowN(t, lim, "other", 1); res.Remaining != 9 {
		t.Errorf("another key: %+v", res)
	}
	charged := allowN(t, twenty, "other", 5)
	refund(t, lim, charged)
	remains(t, twenty, "other", 19)
	if got := five.Limits()[0].Burst(); got != 5 || five.Name() != lim.Name() {
		t.Errorf("%s has limits of %d", five.Name(), got)
	}
}

// withBatches has many callers at once ask for limits of many numbers.
func withBatches(t *testing.T, s Store, limit maker) {
	lim := s.limiter(t, "with", limit(core.PerHour(100)))
	var all sync.WaitGroup
	for i := range int64(40) {
		for range 3 {
			all.Go(func() {
				l, err := lim.With(limit(core.PerHour(100 + i)))
				if err != nil {
					t.Error(err)
					return
				}
				res, err := l.AllowN(t.Context(), fmt.Sprint("k", i), 1+i%2)
				if err != nil || !res.Allowed || res.Limit != 100+i {
					t.Errorf("%d: %+v, %v", i, res, err)
				}
			})
		}
	}
	all.Wait()
	for i := range int64(40) {
		remains(t, with(t, lim, limit(core.PerHour(100+i))), fmt.Sprint("k", i), 100+i-3*(1+i%2))
	}
}

// withHeld reserves by other numbers, at once with others who charge and settle.
func withHeld(t *testing.T, s Store, limit maker) {
	if limits.Named(limit(tenPerTen).Algorithm()).Kind.Delays {
		t.Skip("places in a queue cannot be held")
	}
	lim := s.limiter(t, "with", limit(core.PerHour(100)), core.Hold(time.Minute))
	var all sync.WaitGroup
	for i := range int64(30) {
		all.Go(func() {
			l, err := lim.With(limit(core.PerHour(200 + i)))
			if err != nil {
				t.Error(err)
				return
			}
			key := fmt.Sprint("k", i)
			res, err := l.Reserve(t.Context(), key, 50)
			if err != nil || !res.Allowed || res.Remaining != 150+i {
				t.Errorf("%d: %+v, %v", i, res, err)
			}
			if _, err := l.AllowN(t.Context(), key, 5); err != nil {
				t.Error(err)
			}
			if err := lim.Settle(t.Context(), res, 20); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for i := range int64(30) {
		remains(t, with(t, lim, limit(core.PerHour(200+i))), fmt.Sprint("k", i), 175+i)
	}
}

// withSeveral has limits of other kinds than those of the Limiter.
func withSeveral(t *testing.T, s Store) {
	lim := s.limiter(t, "with", core.FixedWindow(core.PerMinute(10)))
	both := with(t, lim, core.FixedWindow(core.PerMinute(20)), core.GCRA(core.PerHour(30)))
	allowN(t, lim, "k", 4)
	var remaining []int64
	for each := range allowN(t, both, "k", 5).All() {
		remaining = append(remaining, each.Remaining)
	}
	first := int64(11)
	if s.Redis == nil {
		first = 15 // in memory, limits of other names have states of their own
	}
	if !slices.Equal(remaining, []int64{first, 25}) {
		t.Errorf("remaining %v, want %d and 25", remaining, first)
	}
}

// withPeriod changes the period: a limit of the same name keeps its state.
func withPeriod(t *testing.T, s Store) {
	name := core.Name("plan")
	lim := s.limiter(t, "with", core.TokenBucket(core.PerMinute(60), name))
	hour := with(t, lim, core.TokenBucket(core.PerHour(60), name))
	allowN(t, lim, "k", 30)
	if res := allowN(t, hour, "k", 10); !res.Allowed || res.Remaining != 20 || res.ResetAfter != 40*time.Minute {
		t.Errorf("30 used, and 10 more: %+v", res)
	}
	s.Advance(time.Minute)
	remains(t, hour, "k", 21)
	remains(t, with(t, lim, core.TokenBucket(core.PerSecond(60), name)), "k", 21)
}
