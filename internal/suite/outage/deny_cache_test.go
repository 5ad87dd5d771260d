package outage

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/gate"
)

// patient is a client for tests in which Redis always answers, however slow the machine is.
var patient = setup{options: func(o *redis.Options) {
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = time.Minute, time.Minute, time.Minute, time.Minute
}}

// denied returns a Limiter behind the proxy, which admits the count of the rate per period.
func denied(e *env, name string, rate core.Rate, options ...core.Option) *core.Limiter {
	return core.MustNew(e.rdb, name, append(options, core.FixedWindow(rate), core.Timeout(time.Minute))...)
}

// want makes a call and checks its answer and its source.
func want(t testing.TB, l *core.Limiter, key string, n int64, allowed bool, source core.Source) core.Result {
	t.Helper()
	res, err := l.AllowN(t.Context(), key, n)
	if err != nil || res.Allowed != allowed || res.Source != source {
		t.Errorf("a cost of %d on key %q: got %+v, %v; want Allowed %v by %v", n, key, res, err, allowed, source)
	}
	return res
}

// promptly runs a test that needs a remembered denial before it expires. It repeats the test if the machine stood still for
// so long that the denial had expired.
func promptly(t *testing.T, f func(t *check.Round)) {
	check.Rounds(t, slices.Repeat([]time.Duration{time.Second}, 4), func(t *check.Round, _ time.Duration) { f(t) })
}

// TestDenialIsRemembered checks that a denied key is denied without a call to Redis, but only as long as the denial is
// true, and for a second at most.
func TestDenialIsRemembered(t *testing.T) {
	t.Parallel()
	const period, clocks = 2500 * time.Millisecond, 5 * time.Millisecond // clocks is the largest tolerated difference between the process's clock and Redis's
	e := newEnv(t, patient)
	l := denied(e, "denied", core.Per(1, period))
	first := want(t, l, "k", 1, true, core.SourceRedis)
	e.proxy.Latency(4 * clocks) // the second of a remembered denial begins when its call is sent, not when the reply arrives
	end := first.At.Add(first.ResetAfter)
	var known core.Result        // the last denial by Redis
	var sent, received time.Time // when its call was sent, and when the reply was received
	var took time.Duration       // the time between sent and received
	for fromRedis, cached := 0, 0; ; time.Sleep(2 * time.Millisecond) {
		requests, before := e.proxy.Requests(), time.Now()
		res, err := l.Allow(t.Context(), "k")
		after := time.Now()
		switch {
		case err != nil:
			t.Fatal(err)
		case res.Allowed:
			if res.Source != core.SourceRedis || fromRedis > 2+int(period/time.Second) || cached < 5 {
				t.Errorf("got %+v after %d denials by Redis and %d remembered ones, want it admitted by Redis after about one denial by Redis a second, and at least 5 remembered ones", res, fromRedis, cached)
			}
			return
		}
		if over := res.At.Add(res.RetryAfter).Sub(end); over > 10*time.Microsecond || over < -10*time.Millisecond || res.RetryAfter <= 0 {
			t.Errorf("RetryAfter is wrong by %v: got %+v, want a RetryAfter until the end of the window", over, res)
		}
		if res.Source == core.SourceRedis {
			if age := after.Sub(sent); age < min(known.RetryAfter, time.Second) {
				t.Errorf("Redis was asked again %v after a denial with a RetryAfter of %v, want the denial remembered until then, for at most a second", age, known.RetryAfter)
			}
			if res.RetryAfter > took { // otherwise this call fills the gap that the round trip of the call before has left
				fromRedis++
			}
			known, sent, received, took = res, before, after, after.Sub(before)
			continue
		}
		cached++
		if n := e.proxy.Requests() - requests; n != 0 || before.Sub(received) > time.Second || before.After(end.Add(clocks)) {
			t.Errorf("for a remembered denial of %[2]v ago %[1]d commands were sent, %[3]v after the end of the window; want none sent, a denial of at most a second ago, and none after the end", n, before.Sub(received), before.Sub(end))
		}
		if age := res.At.Sub(known.At); age < before.Sub(received)-time.Microsecond || age > after.Sub(sent) {
			t.Errorf("a denial that is %v to %v old has an instant %[3]v after Redis's denial, want one in between", before.Sub(received), after.Sub(sent), age)
		}
	}
}

// TestDenialIsNotStretched checks that the cache answers only calls that are denied for the same reason: calls with the
// same limits that cost as much as the denied call, or more. The test would notice a cache that mistakes a Peek for a
// denial, and one that answers a call that only Redis can decide.
func TestDenialIsNotStretched(t *testing.T) {
	t.Parallel()
	promptly(t, func(t *check.Round) {
		e := newEnv(t, patient)
		l := denied(e, "stretched", core.PerHour(10))
		want(t, l, "k", 8, true, core.SourceRedis)
		want(t, l, "k", 5, false, core.SourceRedis)
		want(t, l, "k", 5, false, core.SourceDenyCache)
		want(t, l, "k", 9, false, core.SourceDenyCache)
		want(t, l, "k", 0, true, core.SourceRedis)
		want(t, l, "k", 1, true, core.SourceRedis)
		want(t, l, "k", 2, false, core.SourceRedis)
		want(t, l, "other", 5, true, core.SourceRedis)
		if res, err := l.Peek(t.Context(), "k"); err != nil || res.Source != core.SourceRedis || !res.Allowed || res.Remaining != 1 {
			t.Errorf("Peek: got %+v, %v; want it allowed by Redis with 1 remaining", res, err)
		}
		want(t, l, "k", 1, true, core.SourceRedis)
		for range 2 {
			if res, err := l.Peek(t.Context(), "k"); err != nil || res.Allowed || res.Source != core.SourceRedis {
				t.Errorf("Peek: got %+v, %v; want it denied by Redis", res, err)
			}
		}
		want(t, l, "k", 1, false, core.SourceRedis)
		want(t, l, "k", 1, false, core.SourceDenyCache)
		off := denied(e, "stretched", core.PerHour(10), core.DenyCache(0))
		want(t, off, "k", 1, false, core.SourceRedis)
		want(t, off, "k", 1, false, core.SourceRedis)

		five := denied(e, "with", core.PerHour(5))
		two, err := five.With(core.FixedWindow(core.PerHour(2)))
		check.Need(t, err)
		want(t, two, "k", 2, true, core.SourceRedis)
		want(t, two, "k", 1, false, core.SourceRedis)
		want(t, two, "k", 1, false, core.SourceDenyCache)
		want(t, five, "k", 1, true, core.SourceRedis)
		want(t, two, "k", 1, false, core.SourceDenyCache)
		check.Need(t, five.Reset(t.Context(), "k"))
		want(t, two, "k", 1, true, core.SourceRedis)
	})
}

// TestCostsAboveTheCapacityAreRemembered checks that costs above the capacity are denied without a call to Redis, whatever
// the costs are, and beside denials of the same key that end. The test would notice a client that can cause a call to Redis
// with each of its requests by asking for too many units.
func TestCostsAboveTheCapacityAreRemembered(t *testing.T) {
	t.Parallel()
	e := newEnv(t, patient)
	for name, limits := range map[string][]core.Option{
		"one":   {core.FixedWindow(core.PerHour(10))},
		"three": {core.FixedWindow(core.PerHour(10)), core.TokenBucket(core.PerDay(50)), core.SlidingWindowLog(core.PerHour(1000))},
	} {
		l := core.MustNew(e.rdb, "above-"+name, append(limits, core.Timeout(time.Minute))...)
		want(t, l, "k", 10, true, core.SourceRedis)
		start, requests, calls := time.Now(), e.proxy.Requests(), 0
		for range 300 {
			for _, n := range []int64{1 << 62, 2000, 1900, 1800, 1700, 1600, 1500, 1000, 51, 50, 12, 11, 2, 1} {
				res, err := l.AllowN(t.Context(), "k", n)
				if err != nil || res.Allowed || res.Remaining != 0 || res.Limit != 10 && n <= 50 || (res.RetryAfter == core.Never) != (n > 10) {
					t.Fatalf("%s: a cost of %d: got %+v, %v; want a denial with 0 remaining, forever if the cost exceeds the capacity of 10", name, n, res, err)
				}
				calls++
			}
		}
		// once is how many denials the cache keeps apart: the costs of 1 and 2, and all costs above the highest capacity
		// together. With three limits, there are also the other costs up to the highest capacity.
		once := map[string]int{"one": 3, "three": 8}[name]
		if fromRedis, most := int(e.proxy.Requests()-requests), once*(2+int(time.Since(start)/time.Second)); fromRedis > most {
			t.Errorf("%s: Redis was asked %d times for %d decisions, want at most %d", name, fromRedis, calls, most)
		}
	}
}

// TestCostsAboveTheCapacityAreAsInRedis checks that a remembered denial of a cost above the capacity equals a denial by
// Redis itself: after a Reset and a Cancel, and with several limits. The remembered denial may only lack units that were
// charged since. The test would notice a cache that answers for costs to which Redis would give another denial.
func TestCostsAboveTheCapacityAreAsInRedis(t *testing.T) {
	t.Parallel()
	e := newEnv(t, patient)
	random := rand.New(rand.NewPCG(15, 15))
	for name, limits := range map[string][]core.Option{
		"one":   {core.SlidingWindowLog(core.PerHour(10))},
		"three": {core.FixedWindow(core.PerHour(10)), core.SlidingWindowCounter(core.PerDay(50)), core.SlidingWindowLog(core.PerHour(100))},
		"tiny":  {core.FixedWindow(core.PerHour(10)), core.SlidingWindowLog(core.PerHour(100))}, // the cache has room for one denial
	} {
		size := 10_000
		if name == "tiny" {
			size = 1
		}
		limits = append(limits, core.Timeout(time.Minute))
		cached := core.MustNew(e.rdb, "as-redis-"+name, append(limits, core.DenyCache(size))...)
		uncached := core.MustNew(e.rdb, "as-redis-"+name, append(limits, core.DenyCache(0))...)
		repeated := 0
		var charged *core.Permit
		since := map[string]bool{} // the keys that were charged since their last Reset or Cancel
		for range 400 {
			key := fmt.Sprint("k", random.IntN(3))
			switch random.IntN(20) {
			case 0:
				charged, _ = cached.Acquire(t.Context(), "k0", 1+random.Int64N(4))
				since["k0"] = true
			case 1:
				check.Need(t, charged.Cancel(t.Context()))
				if charged != nil && charged.Allowed {
					delete(since, "k0")
				}
			case 2:
				delete(since, key)
				check.Need(t, cached.Reset(t.Context(), key))
			}
			n := 11 + random.Int64N(120)
			got, err := cached.AllowN(t.Context(), key, n)
			truth, errTruth := uncached.AllowN(t.Context(), key, n)
			if err != nil || errTruth != nil {
				t.Fatal(err, errTruth)
			}
			if got.Source == core.SourceDenyCache {
				repeated++
			}
			if !alike(got, truth, since[key]) || got.RetryAfter != core.Never {
				t.Fatalf("%s: a cost of %d on key %s: got %+v, want %+v as by Redis", name, n, key, got, truth)
			}
			all := slices.Collect(truth.All())
			for i, each := range slices.Collect(got.All()) {
				if n > each.Limit && !alike(each, all[i], since[key]) {
					t.Fatalf("%s: a cost of %d on key %s, limit %d: got %+v, want %+v as by Redis", name, n, key, i, each, all[i])
				}
			}
		}
		if repeated < 100 && size > 1 || repeated == 0 {
			t.Errorf("%s: %d of 400 decisions were remembered denials, want at least 100 (with room for one denial: 1)", name, repeated)
		}
	}
}

// alike reports whether two denials say the same, apart from the time between them and, if the key was charged, from the
// units charged in that time.
func alike(a, b core.Result, charged bool) bool {
	return a.Allowed == b.Allowed && a.LimitName == b.LimitName && a.Limit == b.Limit && a.RetryAfter == b.RetryAfter &&
		(charged || a.Remaining == b.Remaining && (a.ResetAfter-b.ResetAfter).Abs() < maxStaleness)
}

// maxStaleness is the longest time between a denial and its repetition by the cache: a second, and the slack of a call.
const maxStaleness = time.Second + slack

// acquire takes one unit, which Redis must admit.
func acquire(t testing.TB, l *core.Limiter, key string) *core.Permit {
	t.Helper()
	r, err := l.Acquire(t.Context(), key, 1)
	if err != nil || !r.Allowed || r.Source != core.SourceRedis {
		t.Fatalf("Acquire: got %+v, %v; want it admitted by Redis", r, err)
	}
	return r
}

// giveBack resets the key if the key is "Reset"; otherwise it cancels the charges.
func giveBack(t testing.TB, l *core.Limiter, key string, charged ...*core.Permit) {
	t.Helper()
	if key == "Reset" {
		check.OK(t, l.Reset(t.Context(), key))
		return
	}
	for _, r := range charged {
		check.OK(t, r.Cancel(t.Context()))
	}
}

// TestDenialOfSeveralLimits checks that in a remembered denial of several limits the Result of each limit has the same age
// as the whole. The test would notice a Result whose All returns instants and durations that stand still.
func TestDenialOfSeveralLimits(t *testing.T) {
	t.Parallel()
	promptly(t, func(t *check.Round) {
		e := newEnv(t, patient)
		l := denied(e, "several", core.PerHour(1), core.TokenBucket(core.PerDay(1)), core.SlidingWindowLog(core.PerHour(100)))
		want(t, l, "k", 1, true, core.SourceRedis)
		first := want(t, l, "k", 1, false, core.SourceRedis)
		const later = 20 * time.Millisecond
		time.Sleep(later)
		res := want(t, l, "k", 1, false, core.SourceDenyCache)
		age := res.At.Sub(first.At)
		if age < later || first.RetryAfter-res.RetryAfter != age {
			t.Errorf("a denial repeated %v later: got %+v, want an At and a RetryAfter that moved on by this time, at least 20ms", age, res)
		}
		before, now := slices.Collect(first.All()), slices.Collect(res.All())
		if len(before) != 3 || len(now) != 3 {
			t.Fatalf("got the Results of %d limits and, repeated, of %d; want 3 each", len(before), len(now))
		}
		for i, was := range before {
			each := now[i]
			if each.LimitName != was.LimitName || each.Allowed != was.Allowed || each.Remaining != was.Remaining || each.Source != core.SourceDenyCache {
				t.Errorf("the repeated Result of a limit is %+v, want %+v from the deny cache", each, was)
			}
			if each.At.Sub(was.At) != age || was.ResetAfter-each.ResetAfter != age || !each.Allowed && was.RetryAfter-each.RetryAfter != age {
				t.Errorf("%v after the decision the Result of a limit is %+v, want the times of %+v moved on by this time", age, each, was)
			}
		}
	})
}

// TestDenialOnItsWayIsForgotten checks that a denial is not remembered if its key is reset or given back while the reply is
// on its way, because the denial belongs to the time before. The test would notice a key that is denied for up to a second
// after a Reset by its own process.
func TestDenialOnItsWayIsForgotten(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"Reset", "Cancel"} {
		t.Run(how, func(t *testing.T) {
			e := newEnv(t, patient)
			var g gate.Gate
			e.rdb.AddHook(&g)
			l := denied(e, "late", core.PerHour(1))
			giveBack(t, l, "Cancel", acquire(t, l, "other")) // now Redis knows the script
			charged := acquire(t, l, how)
			g.HoldReplies(t)
			answer := make(chan core.Result, 1)
			go func() {
				res, err := l.Allow(t.Context(), how)
				check.OK(t, err)
				answer <- res
			}()
			g.Await(t, 1) // Redis has denied the call, and its reply is held back
			forgotten := make(chan struct{})
			go func() {
				defer close(forgotten)
				giveBack(t, l, how, charged)
			}()
			g.Await(t, 1) // the Reset or Cancel is a script, too
			g.ReleaseLast(t)
			check.Receive(t, how, forgotten)
			g.Open()
			if res := check.Receive(t, "the denied call returns", answer); res.Allowed || res.Source != core.SourceRedis {
				t.Errorf("the call before: got %+v, want it denied by Redis", res)
			}
			want(t, l, how, 1, true, core.SourceRedis)
		})
	}
}

// TestDenialIsNotFloodedAway checks that a caller whose 50,000 keys are denied once each does not evict a denial that is
// used again and again, and does not lock out new keys.
func TestDenialIsNotFloodedAway(t *testing.T) {
	t.Parallel()
	const flood, between = 50_000, 250
	// Redis decides each of the 50,000 calls, so a busy machine gets a long timeout for each.
	e := newEnv(t, patient)
	l := core.MustNew(e.rdb, "flood", core.FixedWindow(core.PerHour(1)), core.DenyCache(1000), core.Timeout(time.Minute))
	want(t, l, "victim", 1, true, core.SourceRedis)
	// The attacker's keys are copies of a key that is used up.
	copies := `local key = redis.call('KEYS', 'rl:flood:*')[1]
		local value, ttl = redis.call('DUMP', key), redis.call('PTTL', key)
		for i = 1, ARGV[1] do redis.call('RESTORE', (string.gsub(key, 'victim', 'attacker:' .. i)), ttl, value) end`
	if err := e.admin.Eval(t.Context(), copies, nil, flood).Err(); err != nil && err.Error() != "redis: nil" {
		t.Fatal(err)
	}
	start, fromRedis := time.Now(), 0
	for i := 0; i < flood; i += between {
		for range 2 {
			res, err := l.Allow(t.Context(), "victim")
			if err != nil || res.Allowed {
				t.Fatalf("the denied key: got %+v, %v; want a denial", res, err)
			}
			if res.Source == core.SourceRedis {
				fromRedis++
			}
		}
		want(t, l, fmt.Sprint("newcomer:", i), 1, true, core.SourceRedis)
		const attackers = 10
		each, wrong := make(chan int, between), make(chan string, attackers)
		for j := 1; j <= between; j++ {
			each <- i + j
		}
		close(each)
		concurrently(attackers, func() bool {
			for j := range each {
				if res, err := l.Allow(t.Context(), fmt.Sprint("attacker:", j)); err != nil || res.Allowed {
					wrong <- fmt.Sprintf("key %d of the attacker: got %+v, %v; want a denial", j, res, err)
					return false
				}
			}
			return true
		})
		if len(wrong) > 0 {
			t.Fatal(<-wrong)
		}
	}
	// However many other keys came, the cache asks Redis about the denied key only once a second.
	if most := 2 + int(time.Since(start)/time.Second); fromRedis > most {
		t.Errorf("Redis decided on the denied key %d times in %v, want at most %d", fromRedis, time.Since(start), most)
	}
}

// TestBansAreSeen bans or blocks a key in one process: another process notices within a second, or within the duration of
// its lease. A remembered denial says that there is a ban, and never keeps a denial from Redis that would ban.
func TestBansAreSeen(t *testing.T) {
	t.Parallel()
	ctx, e := t.Context(), newEnv(t, patient)
	options := []core.Option{core.Ban(time.Hour), core.Lease(300 * time.Millisecond)}
	one, two := denied(e, "bans", core.PerHour(1000), options...), denied(e, "bans", core.PerHour(1000), options...)
	t.Cleanup(func() { _, _ = one.Close(), two.Close() })
	within := func(d time.Duration, l *core.Limiter, banned bool) {
		t.Helper()
		for begun := time.Now(); ; time.Sleep(time.Millisecond) {
			before := time.Now()
			res, err := l.Allow(ctx, "k")
			if err != nil || res.Banned && (res.Allowed || res.RetryAfter > time.Hour || res.RetryAfter < 50*time.Minute) {
				t.Fatalf("got %+v, %v; want no error, and a ban only as a denial for 50 to 60 minutes", res, err)
			}
			switch {
			case res.Banned == banned:
				return
			case before.Sub(begun) > d+slack/10:
				t.Fatalf("after %v: got %+v, want Banned %v", before.Sub(begun), res, banned)
			}
		}
	}
	lease := func(l *core.Limiter) {
		t.Helper()
		for range 200 {
			res, err := l.Allow(ctx, "k")
			if err != nil || !res.Allowed {
				t.Fatalf("got %+v, %v; want it admitted", res, err)
			}
			if res.Source == core.SourceLease {
				return
			}
		}
		t.Error("none of 200 calls was decided by a lease, want one")
	}
	lease(two)
	check.OK(t, one.Block(ctx, "k", time.Hour))
	within(0, one, true)
	within(300*time.Millisecond, two, true)
	promptly(t, func(t *check.Round) {
		if res, err := two.Allow(ctx, "k"); err != nil || !res.Banned || res.Source != core.SourceDenyCache {
			_, _ = two.Allow(ctx, "k") // this denial is remembered for the next round
			t.Errorf("got %+v, %v; want the ban, from the deny cache", res, err)
		}
	})
	check.OK(t, one.Unblock(ctx, "k"))
	within(0, one, false)
	within(time.Second, two, false)
	lease(two)
	check.OK(t, two.Block(ctx, "k", time.Hour))
	if res, err := two.Allow(ctx, "k"); err != nil || !res.Banned {
		t.Errorf("in the process that blocked the key: got %+v, %v; want the ban", res, err)
	}

	few := denied(e, "few", core.PerHour(1), core.Ban(time.Hour))
	want(t, few, "k", 1, true, core.SourceRedis)
	want(t, few, "k", 2, false, core.SourceRedis)
	brief, cancel := context.WithTimeout(ctx, slack)
	defer cancel()
	if _, err := few.Wait(brief, "k"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Wait: got error %v, want context.DeadlineExceeded", err)
	}
	if res := want(t, few, "k", 1, false, core.SourceRedis); !res.Banned {
		t.Errorf("after the denial of a Wait: got %+v, want a ban by Redis", res)
	}
}
