package conformance

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/model"
)

// logCases test what a sliding window log stores.
func logCases() []testCase {
	return []testCase{
		{"Log/Large", logLarge},
		{"Log/Mixed", logMixed},
		{"Log/OneInstant", logInOneMicrosecond},
		{"Log/RefundLate", logRefundLate},
		{"Log/RefundAfterReset", logRefundAfterReset},
		{"Log/Expired", logExpired},
	}
}

// logLarge charges the largest cost that a log admits: it takes only a few entries.
func logLarge(t *testing.T, s Store) {
	lim := s.limiter(t, "large", core.SlidingWindowLog(core.PerMinute(100_000)))
	res := acquire(t, lim, "k", 100_000)
	want(t, res.Result, true, 0, 0, time.Minute)
	if s.Redis != nil {
		if n := s.Redis.ZCard(t.Context(), s.keys(t)[0]).Val(); n > 18 {
			t.Errorf("a charge of 100,000 units takes %d entries, want at most 18", n)
		}
	}
	s.Advance(time.Second)
	want(t, allowN(t, lim, "k", 1), false, 0, 59*time.Second, 59*time.Second)
	cancel(t, res)
	want(t, peek(t, lim, "k"), true, 100_000, 0, 0)
	s.unstored(t)
}

// logMixed makes more charges than a random history does, of all sizes and several at each instant. For any cost it
// compares with the model when there is room for that cost, before and after every third charge is canceled.
func logMixed(t *testing.T, s Store) {
	const limit = 100_000
	lim := s.limiter(t, "mixed", core.SlidingWindowLog(core.PerMinute(limit)))
	m := model.New(model.Limit{Algorithm: model.SlidingWindowLog, Count: limit, Period: time.Minute.Microseconds()})
	now := peek(t, lim, "k").At.UnixMicro()
	check := func() {
		t.Helper()
		used := limit - peek(t, lim, "k").Remaining
		for cost := limit - used + 1; cost <= limit; cost = cost*8/7 + 1 {
			got, want := allowN(t, lim, "k", cost), m.Decide(now, cost).Each[0]
			if got.Allowed || got.Remaining != want.Remaining || got.RetryAfter != ceil(want.RetryAfter) {
				t.Errorf("a cost of %d: got %+v, want a denial, %d remaining, RetryAfter %v", cost, got, want.Remaining, want.RetryAfter)
			}
		}
	}
	var all []grant
	var outcomes []model.Outcome
	for i := range int64(120) {
		n := 1 + i*i*7919%1600
		if i%5 == 0 {
			n = 1
		}
		all, outcomes = append(all, acquire(t, lim, "k", n)), append(outcomes, m.Decide(now, n))
		if i%4 == 3 {
			s.Advance(time.Second)
			now += time.Second.Microseconds()
		}
	}
	check()
	for i := 1; i < len(all); i += 3 {
		cancel(t, all[i])
		m.Refund(now, outcomes[i])
	}
	check()
}

// logInOneMicrosecond admits a thousand calls while the clock stands: each of them counts.
func logInOneMicrosecond(t *testing.T, s Store) {
	lim := s.limiter(t, "instant", core.SlidingWindowLog(core.PerMinute(3000)))
	for i := range int64(1000) {
		if res := allowN(t, lim, "k", 1); !res.Allowed || res.Remaining != 2999-i {
			t.Fatalf("call %d: got %+v, want it allowed with %d remaining", i+1, res, 2999-i)
		}
	}
	allowN(t, lim, "k", 1999)
	s.Advance(time.Second)
	want(t, allowN(t, lim, "k", 2), false, 1, 59*time.Second, 59*time.Second)
	if s.Redis != nil {
		if n := s.Redis.ZCard(t.Context(), s.keys(t)[0]).Val(); n < 1001 || n > 1001+11 {
			t.Errorf("%d entries for a thousand charges of one unit and one of 1999 units, want 1001 to 1012", n)
		}
	}
}

// logRefundLate gives back a charge after its window has passed, when as many units have been charged since as microseconds
// have passed: no other charge is mistaken for it.
func logRefundLate(t *testing.T, s Store) {
	lim := s.limiter(t, "late", core.SlidingWindowLog(core.Per(5000, 2*time.Millisecond)))
	allowN(t, lim, "k", 3000)
	old := acquire(t, lim, "k", 1)
	s.Advance(2 * time.Millisecond)
	if s.Redis != nil { // the driven clock does not make keys expire, so the test deletes the key
		s.Redis.Del(t.Context(), s.keys(t)...)
	}
	allowN(t, lim, "k", 1000)
	allowN(t, lim, "k", 1)
	cancel(t, old)
	if res := peek(t, lim, "k"); res.Remaining != 3999 {
		t.Errorf("got %+v, want 3999 remaining: the late refund must not give back another charge", res)
	}
}

// logRefundAfterReset gives back a charge that a Reset has forgotten, when a greater charge has received its number:
// nothing is given back of the greater charge.
func logRefundAfterReset(t *testing.T, s Store) {
	lim := s.limiter(t, "forgotten", core.SlidingWindowLog(core.PerMinute(1000)))
	allowN(t, lim, "k", 42)
	old := acquire(t, lim, "k", 57) // at the same instant as the charge before, so this charge has the next number
	s.Advance(time.Microsecond)
	check.Need(t, lim.Reset(t.Context(), "k"))
	allowN(t, lim, "k", 811)
	cancel(t, old)
	remains(t, lim, "k", 189)
}

// logExpired plants many charges that have left the window, as a key has after a pause: none counts, and each new charge
// removes some of them.
func logExpired(t *testing.T, s Store) {
	s.needsRedis(t, "a store in memory has no keys to write to")
	for _, units := range []string{"", ":2"} {
		lim := s.limiter(t, "expired"+strings.TrimPrefix(units, ":"), core.SlidingWindowLog(core.Per(5000, time.Hour)))
		newest := acquire(t, lim, "k", 3)
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
		if units == "" { // only charges of one unit
			cancel(t, newest)
			s.Redis.ZAdd(t.Context(), key, redis.Z{Score: float64(newest.At.UnixMicro()), Member: newest.At.UnixMicro()})
			s.Redis.ZRem(t.Context(), key, entries[2500].Member, entries[2501].Member)
		}
		before := s.Redis.ZCard(t.Context(), key).Val()
		remaining := peek(t, lim, "k").Remaining
		for range 30 {
			res := allowN(t, lim, "k", 1)
			if remaining--; !res.Allowed || res.Remaining != remaining {
				t.Fatalf("got %+v, want it allowed with %d remaining", res, remaining)
			}
			after := s.Redis.ZCard(t.Context(), key).Val()
			if before-after > 1000 {
				t.Errorf("a charge removed %d entries, want at most 1000", before-after)
			}
			before = after
		}
		if before > 40 {
			t.Errorf("%d entries are left after 30 charges, want at most 40", before)
		}
	}
}
