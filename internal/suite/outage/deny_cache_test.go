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

// patient is a client for tests in which Redis always answers, however late a busy machine is.
var patient = setup{options: func(o *redis.Options) {
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = time.Minute, time.Minute, time.Minute, time.Minute
}}

// denied returns a Limiter behind the proxy, which admits n per period.
func denied(e *env, name string, rate core.Rate, options ...core.Option) *core.Limiter {
	return core.MustNew(e.rdb, name, append(options, core.FixedWindow(rate), core.Timeout(time.Minute))...)
}

// want makes a call and checks the answer and its source.
func want(t testing.TB, l *core.Limiter, key string, n int64, allowed bool, source core.Source) core.Result {
	t.Helper()
	res, err := l.AllowN(t.Context(), key, n)
	if err != nil || res.Allowed != allowed || res.Source != source {
		t.Errorf("%d for %q: %+v, %v; want allowed %v by %v", n, key, res, err, allowed, source)
	}
	return res
}

// promptly repeats a test in which a denial that is remembered is asked for at once, on a machine that stands for so long that
// it is over.
func promptly(t *testing.T, f func(t *check.Round)) {
	check.Rounds(t, slices.Repeat([]time.Duration{time.Second}, 4), func(t *check.Round, _ time.Duration) { f(t) })
}

// A denied key is denied without asking Redis, for no longer than is true, and for a second at most.
func TestDenialIsRemembered(t *testing.T) {
	t.Parallel()
	const period, clocks = 2500 * time.Millisecond, 5 * time.Millisecond // how far apart the process's clock and Redis's may be
	e := newEnv(t, patient)
	l := denied(e, "denied", core.Per(1, period))
	first := want(t, l, "k", 1, true, core.SourceRedis)
	e.proxy.Latency(4 * clocks) // a remembered denial counts from when its call was sent, and not from when the reply came
	end := first.At.Add(first.ResetAfter)
	var known core.Result        // Redis's last denial
	var sent, received time.Time // before and after it
	var took time.Duration       // between these
	for asked, cached := 0, 0; ; time.Sleep(2 * time.Millisecond) {
		requests, before := e.proxy.Requests(), time.Now()
		res, err := l.Allow(t.Context(), "k")
		after := time.Now()
		switch {
		case err != nil:
			t.Fatal(err)
		case res.Allowed:
			if res.Source != core.SourceRedis || asked > 2+int(period/time.Second) || cached < 5 {
				t.Errorf("%+v, after %d denials by Redis and %d that were remembered", res, asked, cached)
			}
			return
		}
		if over := res.At.Add(res.RetryAfter).Sub(end); over > 10*time.Microsecond || over < -10*time.Millisecond || res.RetryAfter <= 0 {
			t.Errorf("RetryAfter is off by %v: %+v", over, res)
		}
		if res.Source == core.SourceRedis {
			if age := after.Sub(sent); age < min(known.RetryAfter, time.Second) {
				t.Errorf("Redis was asked %v after a denial with a RetryAfter of %v", age, known.RetryAfter)
			}
			if res.RetryAfter > took { // else it fills the gap that the travel of the one before has left
				asked++
			}
			known, sent, received, took = res, before, after, after.Sub(before)
			continue
		}
		cached++
		if n := e.proxy.Requests() - requests; n != 0 || before.Sub(received) > time.Second || before.After(end.Add(clocks)) {
			t.Errorf("%d commands were sent; the denial is %v old, and the limit is free since %v", n, before.Sub(received), before.Sub(end))
		}
		if age := res.At.Sub(known.At); age < before.Sub(received)-time.Microsecond || age > after.Sub(sent) {
			t.Errorf("a denial of %v to %v ago says that it is of %v ago", before.Sub(received), after.Sub(sent), age)
		}
	}
}

// The cache answers for nothing but what was denied: a call that costs as much, or more, by the same numbers. It would notice one
// that takes what is only looked at for a denial, and one that answers for what Redis alone knows.
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
			t.Errorf("Peek: %+v, %v", res, err)
		}
		want(t, l, "k", 1, true, core.SourceRedis)
		for range 2 {
			if res, err := l.Peek(t.Context(), "k"); err != nil || res.Allowed || res.Source != core.SourceRedis {
				t.Errorf("Peek: %+v, %v; want it denied by Redis", res, err)
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

// Costs above the capacity are denied without asking Redis, whatever they are, and beside denials of the same key that end.
// It would notice a client that has Redis asked for each of its requests by asking for too much.
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
					t.Fatalf("%s: %d: %+v, %v", name, n, res, err)
				}
				calls++
			}
		}
		once := map[string]int{"one": 3, "three": 8}[name] // the costs of 1, 2 and, of three limits, those up to the highest capacity, and all above
		if asked, most := int(e.proxy.Requests()-requests), once*(2+int(time.Since(start)/time.Second)); asked > most {
			t.Errorf("%s: Redis was asked %d times for %d decisions, want at most %d", name, asked, calls, most)
		}
	}
}

// A denial of a cost above the capacity is the same as one by Redis itself: after a Reset and a Cancel, and of several limits. Only
// what was charged since then it does not know. It would notice an answer of costs that are judged otherwise.
func TestCostsAboveTheCapacityAreAsInRedis(t *testing.T) {
	t.Parallel()
	e := newEnv(t, patient)
	random := rand.New(rand.NewPCG(15, 15))
	for name, limits := range map[string][]core.Option{
		"one":   {core.SlidingWindowLog(core.PerHour(10))},
		"three": {core.FixedWindow(core.PerHour(10)), core.SlidingWindowCounter(core.PerDay(50)), core.SlidingWindowLog(core.PerHour(100))},
		"tiny":  {core.FixedWindow(core.PerHour(10)), core.SlidingWindowLog(core.PerHour(100))}, // all denials have the same slot
	} {
		size := 10_000
		if name == "tiny" {
			size = 1
		}
		limits = append(limits, core.Timeout(time.Minute))
		cached := core.MustNew(e.rdb, "as-redis-"+name, append(limits, core.DenyCache(size))...)
		asked := core.MustNew(e.rdb, "as-redis-"+name, append(limits, core.DenyCache(0))...)
		repeated := 0
		var charged *core.Permit
		since := map[string]bool{} // keys that were charged since they were forgotten
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
			truth, errTruth := asked.AllowN(t.Context(), key, n)
			if err != nil || errTruth != nil {
				t.Fatal(err, errTruth)
			}
			if got.Source == core.SourceDenyCache {
				repeated++
			}
			if !alike(got, truth, since[key]) || got.RetryAfter != core.Never {
				t.Fatalf("%s: %d for %s: %+v, Redis says %+v", name, n, key, got, truth)
			}
			all := slices.Collect(truth.All())
			for i, each := range slices.Collect(got.All()) {
				if n > each.Limit && !alike(each, all[i], since[key]) {
					t.Fatalf("%s: %d for %s: limit %d: %+v, Redis says %+v", name, n, key, i, each, all[i])
				}
			}
		}
		if repeated < 100 && size > 1 || repeated == 0 {
			t.Errorf("%s: only %d of 400 were remembered", name, repeated)
		}
	}
}

// alike reports whether two denials say the same, apart from the time between them and the units charged in
// that time.
func alike(a, b core.Result, charged bool) bool {
	return a.Allowed == b.Allowed && a.LimitName == b.LimitName && a.Limit == b.Limit && a.RetryAfter == b.RetryAfter &&
		(charged || a.Remaining == b.Remaining && (a.ResetAfter-b.ResetAfter).Abs() < maxStaleness)
}

// maxStaleness is for how long the cache repeats a denial, and some time for the call.
const maxStaleness = time.Second + slack

func acquire(t testing.TB, l *core.Limiter, key string) *core.Permit {
	t.Helper()
	r, err := l.Acquire(t.Context(), key, 1)
	if err != nil || !r.Allowed || r.Source != core.SourceRedis {
		t.Fatalf("%+v, %v; want it admitted by Redis", r, err)
	}
	return r
}

// giveBack resets a key, or takes back its charge.
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

// Of several limits each one's part of a remembered denial is as old as the whole. It would notice an All whose instants
// and durations stand still while those of the Result go on.
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
			t.Errorf("a denial of %v ago: %+v", age, res)
		}
		before, now := slices.Collect(first.All()), slices.Collect(res.All())
		if len(before) != 3 || len(now) != 3 {
			t.Fatalf("%d and %d limits, want 3", len(before), len(now))
		}
		for i, was := range before {
			each := now[i]
			if each.LimitName != was.LimitName || each.Allowed != was.Allowed || each.Remaining != was.Remaining || each.Source != core.SourceDenyCache {
				t.Errorf("%+v, which was %+v", each, was)
			}
			if each.At.Sub(was.At) != age || was.ResetAfter-each.ResetAfter != age || !each.Allowed && was.RetryAfter-each.RetryAfter != age {
				t.Errorf("%v after the decision: %+v, which was %+v", age, each, was)
			}
		}
	})
}

// A denial that is on its way while its key is reset or given back is not remembered: it is of the time before. It would
// notice a key that is denied for up to a second after a Reset of its own process.
func TestDenialOnItsWayIsForgotten(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"Reset", "Cancel"} {
		t.Run(how, func(t *testing.T) {
			e := newEnv(t, patient)
			var g gate.Gate
			e.rdb.AddHook(&g)
			l := denied(e, "late", core.PerHour(1))
			giveBack(t, l, "Cancel", acquire(t, l, "other")) // Redis has its script then
			charged := acquire(t, l, how)
			g.HoldReplies(t)
			answer := make(chan core.Result, 1)
			go func() {
				res, err := l.Allow(t.Context(), how)
				check.OK(t, err)
				answer <- res
			}()
			g.Await(t, 1) // Redis has denied it
			forgotten := make(chan struct{})
			go func() {
				defer close(forgotten)
				giveBack(t, l, how, charged)
			}()
			g.Await(t, 1) // it is a script, too
			g.ReleaseLast(t)
			check.Receive(t, how, forgotten)
			g.Open()
			if res := check.Receive(t, "the denied call returns", answer); res.Allowed || res.Source != core.SourceRedis {
				t.Errorf("the call before: %+v, want it denied by Redis", res)
			}
			want(t, l, how, 1, true, core.SourceRedis)
		})
	}
}

// A caller that has 50,000 keys denied once each evicts none that is denied again and again, and locks out no newcomer.
func TestDenialIsNotFloodedAway(t *testing.T) {
	t.Parallel()
	const flood, between = 50_000, 250
	// Each of 50,000 calls is decided by Redis, so a busy machine has long for each.
	e := newEnv(t, patient)
	l := core.MustNew(e.rdb, "flood", core.FixedWindow(core.PerHour(1)), core.DenyCache(1000), core.Timeout(time.Minute))
	want(t, l, "victim", 1, true, core.SourceRedis)
	// The attacker's keys, used up before: copies of one that is.
	copies := `local key = redis.call('KEYS', 'rl:flood:*')[1]
		local value, ttl = redis.call('DUMP', key), redis.call('PTTL', key)
		for i = 1, ARGV[1] do redis.call('RESTORE', (string.gsub(key, 'victim', 'attacker:' .. i)), ttl, value) end`
	if err := e.admin.Eval(t.Context(), copies, nil, flood).Err(); err != nil && err.Error() != "redis: nil" {
		t.Fatal(err)
	}
	start, asked := time.Now(), 0
	for i := 0; i < flood; i += between {
		for range 2 {
			res, err := l.Allow(t.Context(), "victim")
			if err != nil || res.Allowed {
				t.Fatalf("the denied key: %+v, %v", res, err)
			}
			if res.Source == core.SourceRedis {
				asked++
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
					wrong <- fmt.Sprintf("attacker %d was not denied: %+v, %v", j, res, err)
					return false
				}
			}
			return true
		})
		if len(wrong) > 0 {
			t.Fatal(<-wrong)
		}
	}
	// It is asked for once a second, as the cache must, however many others came.
	if most := 2 + int(time.Since(start)/time.Second); asked > most {
		t.Errorf("the denied key was asked for %d times in %v, want at most %d", asked, time.Since(start), most)
	}
}

// TestBansAreSeen makes one process ban or block a key: another process notices within a second, or within
// the duration of its lease. Its remembered denial says that there is a ban, and never prevents Redis from
// seeing a denial that would ban.
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
				t.Fatalf("%+v, %v", res, err)
			}
			switch {
			case res.Banned == banned:
				return
			case before.Sub(begun) > d+slack/10:
				t.Fatalf("%v later %+v, want banned %v", before.Sub(begun), res, banned)
			}
		}
	}
	lease := func(l *core.Limiter) {
		t.Helper()
		for range 200 {
			res, err := l.Allow(ctx, "k")
			if err != nil || !res.Allowed {
				t.Fatalf("%+v, %v", res, err)
			}
			if res.Source == core.SourceLease {
				return
			}
		}
		t.Error("nothing was leased")
	}
	lease(two)
	check.OK(t, one.Block(ctx, "k", time.Hour))
	within(0, one, true)
	within(300*time.Millisecond, two, true)
	promptly(t, func(t *check.Round) {
		if res, err := two.Allow(ctx, "k"); err != nil || !res.Banned || res.Source != core.SourceDenyCache {
			_, _ = two.Allow(ctx, "k") // that is remembered now
			t.Errorf("%+v, %v", res, err)
		}
	})
	check.OK(t, one.Unblock(ctx, "k"))
	within(0, one, false)
	within(time.Second, two, false)
	lease(two)
	check.OK(t, two.Block(ctx, "k", time.Hour))
	if res, err := two.Allow(ctx, "k"); err != nil || !res.Banned {
		t.Errorf("the process that has blocked goes on: %+v, %v", res, err)
	}

	few := denied(e, "few", core.PerHour(1), core.Ban(time.Hour))
	want(t, few, "k", 1, true, core.SourceRedis)
	want(t, few, "k", 2, false, core.SourceRedis)
	brief, cancel := context.WithTimeout(ctx, slack)
	defer cancel()
	if _, err := few.Wait(brief, "k"); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if res := want(t, few, "k", 1, false, core.SourceRedis); !res.Banned {
		t.Errorf("the denial of who waits was repeated: %+v", res)
	}
}
