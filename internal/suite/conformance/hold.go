package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/coreaccess"
	"github.com/redislimit/redislimit/internal/inside"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/limits"
)

// holdCases test holds in situations that random histories do not reach: a loss of the state, steps of the clock, the TTL,
// great costs and foreign values. When any other rule of holds is broken, [Properties] fails, as
// internal/tools/mutants/hold.txt shows.
func holdCases() []testCase {
	holds := func(name string, run func(t *testing.T, s Store, limit maker)) []testCase {
		return slices.DeleteFunc(each("Hold/"+name, run), func(c testCase) bool {
			return limits.Named(c.name[strings.LastIndex(c.name, "/")+1:]).Kind.Delays // a queue has no holds
		})
	}
	return slices.Concat(
		holds("Lost", settleAfterLoss), holds("TTL", holdTTL), holds("ClockBack", holdClockBack),
		holds("Huge", hugeHolds), holds("Less", holdExpiresUnderLess), holds("Late", settleLate), holds("OwnClock", settleByOwnClock),
		holds("WindowBefore", holdAfterWindow),
		[]testCase{{"Hold/Record", foreignRecords}, {"Hold/NewestInstant", holdBehindNewest}},
	)
}

// settleAfterLoss settles holds after their key was evicted and others have reserved units since: the settlement must not
// take units from the others.
func settleAfterLoss(t *testing.T, s Store, limit maker) {
	lim := s.limiter(t, "hold", limit(tenPerTen), s.entries(1))
	lost, lostToo, lostLong := reserve(t, lim, "k", 4), reserve(t, lim, "k", 2), reserve(t, lim, "k", 1)
	if s.Redis == nil {
		allowN(t, lim, "another", 1) // makes the memory evict the key
	} else {
		s.Redis.Del(context.Background(), s.keys(t)...)
	}
	settle(t, lost, 3)
	remains(t, lim, "k", 7)
	others := reserve(t, lim, "k", 5)
	settle(t, lostToo, 1)
	remains(t, lim, "k", 1)
	settle(t, others, 0)
	remains(t, lim, "k", 6)
	reserve(t, lim, "k", 2)
	s.Advance(12 * time.Second) // every hold expires, and the lost ones would have, too: a settlement comes too late now
	before := peek(t, lim, "k").Remaining
	settle(t, lostLong, 3)
	remains(t, lim, "k", before-2)
}

// settleLate settles long after the hold has expired, when its units were charged: only units beyond the held ones are
// charged then. This must not depend on calls on the key meanwhile, nor on whether anything is still stored.
func settleLate(t *testing.T, s Store, limit maker) {
	for i, late := range []time.Duration{1200 * time.Millisecond, 2500 * time.Millisecond, time.Minute, 100 * 24 * time.Hour} {
		for _, meanwhile := range []string{"nothing", "a Peek", "a charge", "a Reset", "another hold"} {
			lim := s.limiter(t, fmt.Sprint("late", i), limit(core.PerSecond(100)))
			key := strings.TrimPrefix(meanwhile, "a ")
			held, more := reserve(t, lim, key, 60), reserve(t, lim, key, 10)
			s.Advance(late)
			switch meanwhile {
			case "a Peek":
				peek(t, lim, key)
			case "a charge":
				allowN(t, lim, key, 1)
			case "a Reset":
				check.Need(t, lim.Reset(t.Context(), key))
			case "another hold":
				settle(t, reserve(t, lim, key, 5), 5)
			}
			before := peek(t, lim, key).Remaining
			settle(t, held, 60)
			remains(t, lim, key, before)
			settle(t, more, 12)
			remains(t, lim, key, before-2)
		}
	}
}

// settleByOwnClock settles a hold that is over by the process's clock, when Redis has lost the hold and Redis's clock shows
// an instant before its expiry, for example after a step back or a failover. A hold that may not have expired yet by the
// process's clock does not count as over.
func settleByOwnClock(t *testing.T, s Store, limit maker) {
	s.needsRedis(t, "a store in memory has only one clock")
	now := time.Now()
	clock := inside.Core.Simulate(coreaccess.Simulation{Holds: func() time.Time { return now }})
	lim := s.limiter(t, "own", limit(core.PerHour(100)), limits.Hold(time.Minute, limit(core.PerHour(100))), clock)
	over, lasts, known := reserve(t, lim, "over", 60), reserve(t, lim, "lasts", 60), reserve(t, lim, "known", 60)
	for _, key := range []string{"over", "lasts"} {
		s.Redis.Del(t.Context(), "rl:own:{"+key+"}:"+limits.Key(lim.Limits()[0]))
	}
	now = now.Add(70 * time.Second) // a hold of a minute expires at most 10 s later, because its expiry is rounded up
	settle(t, lasts, 63)
	remains(t, lim, "lasts", 37)
	now = now.Add(time.Microsecond)
	settle(t, over, 63)
	remains(t, lim, "over", 97)
	settle(t, known, 10)
	remains(t, lim, "known", 90)
}

// holdTTL compares the TTL of a key that has holds with the time for which the key will be needed once all holds have been
// charged.
func holdTTL(t *testing.T, s Store, limit maker) {
	s.needsRedis(t, "no keys to look at")
	lim := s.limiter(t, "ttl", limit(tenPerTen), limits.Hold(6*time.Second, limit(tenPerTen))) // the hold expires after 6 to 7 s
	before := time.Now()
	res := reserve(t, lim, "k", 4)
	for _, key := range s.keys(t) {
		expires, least := s.expiry(t, key), res.At.Add(6*time.Second+4*time.Second-s.blur(before))
		if most := res.At.Add(7*time.Second + 2*10*time.Second + time.Second); expires.Before(least) || expires.After(most) {
			t.Errorf("%s expires %v after the reservation, want %v to %v", key, expires.Sub(res.At), least.Sub(res.At), most.Sub(res.At))
		}
	}
	settle(t, res, 4)
	for _, key := range s.keys(t) {
		if expires := s.expiry(t, key); expires.After(res.At.Add(20*time.Second + time.Second + s.blur(before))) {
			t.Errorf("%s expires %v after the reservation, once it is settled; want at most 21s", key, expires.Sub(res.At))
		}
	}
	reserve(t, lim, "two", 1)
	s.Advance(5 * time.Second)
	before = time.Now()
	reserve(t, lim, "two", 1)
	res.Result = allowN(t, lim, "two", 1) // an ordinary decision reads only the head of the record of holds
	for _, key := range s.keys(t) {
		if least := res.At.Add(6*time.Second + 2*time.Second - s.blur(before)); strings.Contains(key, "two") && s.expiry(t, key).Before(least) {
			t.Errorf("%s expires %v after a charge beside two holds, want at least %v", key, s.expiry(t, key).Sub(res.At), least.Sub(res.At))
		}
	}
}

// holdClockBack turns the clock back after a hold has expired: a hold that begins then is not mistaken for one that was
// charged. Meanwhile a reservation of no units is kept and renewed, which changes nothing.
func holdClockBack(t *testing.T, s Store, limit maker) {
	s.needsStepsBack(t)
	lim := s.limiter(t, "hold", limit(core.PerHour(100)), limits.Hold(6*time.Second, limit(core.PerHour(100))))
	late := reserve(t, lim, "k", 10)
	s.Advance(8 * time.Second)
	allowN(t, lim, "k", 1)
	nothing := reserve(t, lim, "k", 0)
	nothing.Keep()
	s.Advance(-8 * time.Second)
	inside.Core.Driver(lim).Renew()
	left := int64(89)
	if limits.Named(limit(tenPerTen).Algorithm()).Kind.Debt {
		left = 88 // the instant at which the debt ends stands, and is further away after the step back
	}
	res := reserve(t, lim, "k", 20)
	remains(t, lim, "k", left-20)
	settle(t, late, 10) // the hold has been charged, although by the clock it has not expired
	remains(t, lim, "k", left-20)
	settle(t, res, 0)
	remains(t, lim, "k", left)
}

// holdAfterWindow reserves a unit after all charges have left the window. Then the clock steps back into the window: the
// used units are the reserved one, and as many as for a key without a reservation.
func holdAfterWindow(t *testing.T, s Store, limit maker) {
	s.needsStepsBack(t)
	lim := s.limiter(t, "window", limit(tenPerTen))
	allowN(t, lim, "plain", 9)
	s.Advance(allowN(t, lim, "k", 9).ResetAfter)
	reserve(t, lim, "k", 1)
	s.Advance(-2 * time.Second)
	left := peek(t, lim, "plain").Remaining
	if left == 10 {
		t.Error("after the step back no unit is used, want some: the step is too small for this test")
	}
	remains(t, lim, "k", left-1)
	if res := allowN(t, lim, "k", left); res.Allowed {
		t.Errorf("a cost of one more than remains: got %+v, want a denial", res)
	}
}

// hugeHolds asks, beside held units, for a cost at which the sum exceeds an int64, and settles at more units than can be
// stored.
func hugeHolds(t *testing.T, s Store, limit maker) {
	const most = 100_000 // the largest limit of a log
	lim := s.limiter(t, "hold", limit(core.Per(most, 400*24*time.Hour)))
	reserve(t, lim, "k", 1)
	for _, n := range []int64{most + 1, 1 << 31, 1<<62 + 1, 1<<63 - 1} {
		if res := allowN(t, lim, "k", n); res.Allowed || res.RetryAfter != core.Never {
			t.Errorf("a cost of %d with a limit of %d: got %+v, want a denial forever", n, most, res)
		}
	}
	remains(t, lim, "k", most-1)
	for range 3 {
		held := reserve(t, lim, "debt", 0)
		settle(t, held, 1e9)
		if res := allowN(t, lim, "debt", 1); res.Allowed || res.Remaining != 0 || res.RetryAfter <= 0 || res.ResetAfter <= 0 {
			t.Errorf("in great debt: got %+v, want a denial, 0 remaining, and times until the debt ends", res)
		}
	}
}

// holdExpiresUnderLess reserves by a large limit. After the hold has expired, a process with a smaller limit is the first
// to decide: all held units are charged.
func holdExpiresUnderLess(t *testing.T, s Store, limit maker) {
	lim := s.limiter(t, "hold", limit(core.PerHour(100)), limits.Hold(6*time.Second, limit(core.PerHour(100))))
	reserve(t, lim, "k", 60)
	s.Advance(8 * time.Second)
	if res := allowN(t, with(t, lim, limit(core.PerHour(40))), "k", 1); res.Allowed {
		t.Errorf("with 60 units used of a limit of 40: got %+v, want a denial", res)
	}
	remains(t, lim, "k", 40)
}

// foreignRecords stores values that look like records of holds but are damaged: such a value counts as nothing stored, and
// does not stay forever.
func foreignRecords(t *testing.T, s Store) {
	s.needsRedis(t, "no keys to write")
	ctx := context.Background()
	lim := s.limiter(t, "foreign", core.TokenBucket(core.PerMinute(10)))
	held := reserve(t, lim, "k", 4)
	stored := s.keys(t)[0]
	main, record, _ := strings.Cut(s.Redis.Get(ctx, stored).Val(), "|")
	settle(t, held, 0)
	for _, planted := range []string{
		"|", "||", main + "|", main + "|x", main + "|H1", main + "|H1 1 2 3", main + "|H1 1 0 5 0", main + "|H1 1 0 0 5", main + "|H1 1 0 5 nan",
		main + "|H1 99999999999999999999 0 1 5", "|1 0 5:1", main + "|" + record + "|" + record, "B1 10 5+nan|" + record,
		main + "|H1 1 0 99999999999999999999 5", main + "|H1 1 0 9 5 6:99999999999999999999",
	} {
		check.Need(t, s.Redis.Set(ctx, stored, planted, 0).Err())
		got := reserve(t, lim, "k", 10)
		if !got.Allowed && got.RetryAfter > time.Hour {
			t.Errorf("with %q stored: got %+v, want it allowed, or within an hour", planted, got.Result)
		}
		settle(t, got, 0)
		if ttl := s.Redis.PTTL(ctx, stored).Val(); ttl == -1 {
			t.Errorf("with %q stored: after a reservation the key has no TTL, want one", planted)
		}
	}
}

// holdBehindNewest lets a hold expire while the clock is behind the newest charge of a log: the held units are charged at
// the instant of that newest charge, as any other units would be.
func holdBehindNewest(t *testing.T, s Store) {
	s.needsStepsBack(t)
	lim := s.limiter(t, "newest", core.SlidingWindowLog(core.PerMinute(10)), core.Hold(6*time.Second))
	allowN(t, lim, "k", 1)
	s.Advance(-50 * time.Second)
	reserve(t, lim, "k", 4)
	s.Advance(8 * time.Second)
	want(t, peek(t, lim, "k"), true, 5, 0, time.Minute)
	s.Advance(42*time.Second + 30*time.Second)
	want(t, peek(t, lim, "k"), true, 5, 0, 30*time.Second)
	s.Advance(30 * time.Second)
	want(t, peek(t, lim, "k"), true, 10, 0, 0)
}
