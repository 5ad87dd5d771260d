package conformance

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
)

// logCases are about what a sliding window log stores.
func logCases() []testCase {
	return []testCase{
		{"Log/Large", logLarge},
		{"Log/Mixed", logMixed},
		{"Log/RefundLate", logRefundLate},
		{"Log/Expired", logExpired},
	}
}

// logLarge charges all that a log can have: it takes a few entries.
func logLarge(t *testing.T, s Store) {
	lim := s.limiter(t, "large", core.SlidingWindowLog(core.PerMinute(100_000)))
	res := allowN(t, lim, "k", 100_000)
	want(t, res, true, 0, 0, time.Minute)
	if s.Redis != nil {
		if n := s.Redis.ZCard(t.Context(), s.keys(t)[0]).Val(); n > 18 {
			t.Errorf("%d entries", n)
		}
	}
	s.Advance(time.Second)
	want(t, allowN(t, lim, "k", 1), false, 0, 59*time.Second, 59*time.Second)
	refund(t, lim, res)
	want(t, peek(t, lim, "k"), true, 100_000, 0, 0)
	if s.Redis != nil && len(s.keys(t)) != 0 {
		t.Errorf("stored is %v", s.keys(t))
	}
}

// logMixed has charges of all sizes, four at each instant, and asks when there is
// room for any cost; then it refunds every third.
func logMixed(t *testing.T, s Store) {
	const charges = 120
	lim := s.limiter(t, "mixed", core.SlidingWindowLog(core.PerMinute(100_000)))
	type entry struct {
		at, n int64 // at: seconds from the first
		res   core.Result
	}
	var all []entry
	used := int64(0)
	for i := range int64(charges) {
		n := 1 + i*i*7919%1600
		if i%5 == 0 {
			n = 1
		}
		all = append(all, entry{i / 4, n, allowN(t, lim, "k", n)})
		used += n
		if i%4 == 3 && i < charges-1 {
			s.Advance(time.Second)
		}
	}
	check := func() {
		t.Helper()
		for cost := int64(1); cost <= 100_000; cost = cost*5/3 + 1 {
			retry, left := time.Duration(0), used+cost-100_000
			for _, e := range all {
				if left > 0 {
					left -= e.n
					retry = time.Duration(e.at+60-(charges-1)/4) * time.Second
				}
			}
			if res := ask(t, lim, cost, retry > 0); res.Remaining != 100_000-used || retry > 0 && res.RetryAfter != retry {
				t.Errorf("cost %d: %+v, want %d remaining, retry %v", cost, res, 100_000-used, retry)
			}
		}
	}
	check()
	var kept []entry
	for i, e := range all {
		if i%3 != 1 {
			kept = append(kept, e)
			continue
		}
		refund(t, lim, e.res)
		used -= e.n
	}
	all = kept
	check()
}

// ask asks for a cost that is to be denied. One to be admitted it leaves at a Peek,
// which charges nothing.
func ask(t *testing.T, lim *core.Limiter, cost int64, denied bool) core.Result {
	t.Helper()
	if !denied {
		return peek(t, lim, "k")
	}
	res := allowN(t, lim, "k", cost)
	if res.Allowed {
		t.Errorf("a cost of %d was admitted", cost)
	}
	return res
}

// logRefundLate gives back a charge after its window, when as many units have been
// charged since as have microseconds passed: no other is taken for it.
func logRefundLate(t *testing.T, s Store) {
	lim := s.limiter(t, "late", core.SlidingWindowLog(core.Per(5000, 2*time.Millisecond)))
	allowN(t, lim, "k", 3000)
	old := allowN(t, lim, "k", 1)
	s.Advance(2 * time.Millisecond)
	if s.Redis != nil { // its clock does not go with the driven one, so that no key expires
		s.Redis.Del(t.Context(), s.keys(t)...)
	}
	allowN(t, lim, "k", 1000)
	allowN(t, lim, "k", 1)
	refund(t, lim, old)
	if res := peek(t, lim, "k"); res.Remaining != 3999 {
		t.Errorf("another charge was given back: %+v", res)
	}
}

// logExpired has many charges that have left the window, as of a key that was not
// used for a while: none counts, and each charge removes some.
func logExpired(t *testing.T, s Store) {
	if s.Redis == nil {
		t.Skip("no keys to write to")
	}
	for _, units := range []string{"", ":2"} {
		lim := s.limiter(t, "expired"+strings.TrimPrefix(units, ":"), core.SlidingWindowLog(core.Per(5000, time.Hour)))
		newest := allowN(t, lim, "k", 3)
		key := fmt.Sprintf("rl:expired%s:{k}:log-1h", strings.TrimPrefix(units, ":"))
		old := newest.At.Add(-2 * time.Hour).UnixMicro()
		var entries []redis.Z
		for i := range int64(2500) {
			entries = append(entries, redis.Z{Score: float64(old + i), Member: fmt.Sprint(old+i, units)})
			if units != "" {
				entries = append(entries, redis.Z{Score: -float64(old + i + 1<<50), Member: fmt.Sprintf("%d*1", old+i)})
			}
		}
		entries = append(entries, redis.Z{Score: 1, Member: "1:" + strings.Repeat("9", 400)}, redis.Z{Score: 2, Member: "what"})
		s.Redis.ZAdd(t.Context(), key, entries...)
		if units == "" { // the charges of one unit alone
			refund(t, lim, newest)
			s.Redis.ZAdd(t.Context(), key, redis.Z{Score: float64(newest.At.UnixMicro()), Member: newest.At.UnixMicro()})
			s.Redis.ZRem(t.Context(), key, entries[2500].Member, entries[2501].Member)
		}
		before := s.Redis.ZCard(t.Context(), key).Val()
		remaining := peek(t, lim, "k").Remaining
		for range 30 {
			res := allowN(t, lim, "k", 1)
			if remaining--; !res.Allowed || res.Remaining != remaining {
				t.Fatalf("%+v, want %d remaining", res, remaining)
			}
			after := s.Redis.ZCard(t.Context(), key).Val()
			if before-after > 1000 {
				t.Errorf("a charge removed %d entries", before-after)
			}
			before = after
		}
		if before > 40 {
			t.Errorf("%d entries after 30 charges", before)
		}
	}
}
