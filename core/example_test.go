package core_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
)

var (
	ctx = context.Background()
	rdb = redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
)

// Each user may send a hundred requests per minute, to all processes together.
func Example() {
	lim, err := core.New(rdb, "api", core.TokenBucket(core.PerMinute(100)))
	if err != nil {
		log.Fatal(err) // a mistake in the options
	}
	defer func() { _ = lim.Close() }()

	switch res, err := lim.Allow(ctx, "user:alice"); {
	case err != nil:
		log.Print(err)
	case res.Allowed:
		fmt.Println("go on,", res.Remaining, "left")
	default:
		fmt.Println("come back in", res.RetryAfter)
	}
}

// A request is admitted if all limits admit it. Limits and other options may be given in any order.
func ExampleNew() {
	lim, err := core.New(rdb, "api",
		core.TokenBucket(core.PerSecond(10), core.Burst(30)),
		core.FixedWindow(core.PerDay(5000), core.Aligned()),
		core.FailClosed(), core.Timeout(200*time.Millisecond))
	fmt.Println(lim.Limits(), err)
	// Output: [token_bucket 10/1s burst=30 fixed_window 5000/1d aligned] <nil>
}

// Tests need no Redis, and with Clock they need not wait: this one replays another day.
func ExampleNewMemory() {
	now := time.Date(2025, 12, 31, 23, 0, 0, 0, time.UTC)
	lim, err := core.NewMemory("api", core.FixedWindow(core.PerHour(1)), core.Clock(func() time.Time { return now }))
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		res, _ := lim.Allow(ctx, "user:alice")
		fmt.Println(res.At.UTC().Format(time.Kitchen), res.Allowed, res.RetryAfter)
		now = now.Add(45 * time.Minute)
	}
	// Output:
	// 11:00PM true 0s
	// 11:45PM false 15m0s
	// 12:30AM true 0s
}

// Ten requests per second on average, and thirty at once.
func ExampleTokenBucket() {
	lim := core.MustNewMemory("api", core.TokenBucket(core.PerSecond(10), core.Burst(30)))

	res, _ := lim.AllowN(ctx, "user:alice", 30)
	fmt.Println(res.Allowed, res.Remaining, res.ResetAfter)
	// Output: true 0 3s
}

// GCRA admits the same requests as a token bucket.
func ExampleGCRA() {
	lim := core.MustNewMemory("api", core.GCRA(core.PerMinute(60), core.Burst(5)))

	res, _ := lim.Allow(ctx, "device:17")
	fmt.Println(res.Remaining, res.ResetAfter)
	// Output: 4 1s
}

// 5000 requests per calendar day (UTC). Without Aligned, the day would begin with the first request.
func ExampleFixedWindow() {
	lim := core.MustNewMemory("api", core.FixedWindow(core.PerDay(5000), core.Aligned()))

	res, _ := lim.Allow(ctx, "tenant:acme")
	fmt.Println(res.Remaining, res.At.Add(res.ResetAfter).UTC().Format("15:04:05"))
	// Output: 4999 00:00:00
}

// The months are calendar months, which begin at midnight in Berlin and differ in length.
func ExamplePerMonth() {
	now := time.Date(2026, 3, 31, 21, 59, 0, 0, time.UTC) // 23:59 in Berlin, where it is summer time
	lim := core.MustNewMemory("contract", core.FixedWindow(core.PerMonth(10_000), core.In("Europe/Berlin")),
		core.Clock(func() time.Time { return now }))

	res, _ := lim.AllowN(ctx, "customer:acme", 9000)
	fmt.Println(res.Remaining, "left in March, which ends in", res.ResetAfter)
	now = now.Add(time.Minute)
	res, _ = lim.AllowN(ctx, "customer:acme", 1)
	fmt.Println(res.Remaining, "left in April, which ends in", res.ResetAfter)
	// Output:
	// 1000 left in March, which ends in 1m0s
	// 9999 left in April, which ends in 720h0m0s
}

// A day of a time zone has 23 hours when the clocks are put forward, and 25 when they are put back.
func ExampleIn() {
	limit := core.FixedWindow(core.PerDay(5000), core.In("America/New_York"))

	for _, day := range []time.Time{
		time.Date(2026, 3, 8, 12, 0, 0, 0, time.UTC), time.Date(2026, 3, 9, 12, 0, 0, 0, time.UTC), time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC),
	} {
		start, end, _ := limit.WindowAt(day)
		fmt.Println(start.Format("2 January 15:04 MST"), end.Sub(start))
	}
	// Output:
	// 8 March 00:00 EST 23h0m0s
	// 9 March 00:00 EDT 24h0m0s
	// 1 November 00:00 EDT 25h0m0s
}

// A page shows when a quota resets, even before anything has been charged.
func ExampleLimit_WindowAt() {
	now := time.Date(2026, 11, 12, 8, 30, 0, 0, time.UTC)
	quota := core.FixedWindow(core.PerDay(5000), core.In("Europe/Berlin"))
	lim := core.MustNewMemory("api", quota, core.Clock(func() time.Time { return now }))

	res, _ := lim.Peek(ctx, "user:alice")
	_, resets, _ := quota.WindowAt(res.At)
	fmt.Printf("%d of %d left, resets at %s\n", res.Remaining, res.Limit, resets.Format("Mon 15:04"))
	// Output: 5000 of 5000 left, resets at Fri 00:00
}

// A sliding window counter needs little memory, even for a large limit.
func ExampleSlidingWindowCounter() {
	lim := core.MustNewMemory("api", core.SlidingWindowCounter(core.PerDay(1_000_000)))

	res, _ := lim.Allow(ctx, "tenant:acme")
	fmt.Println(res.Remaining)
	// Output: 999999
}

// A sliding window log is exact: no period of one minute, wherever it begins, has more than five.
func ExampleSlidingWindowLog() {
	lim := core.MustNewMemory("logins", core.SlidingWindowLog(core.PerMinute(5)))

	res, _ := lim.AllowN(ctx, "user:alice", 5)
	fmt.Println(res.Allowed, res.Remaining)
	// Output: true 0
}

// A leaky bucket admits a burst and spreads it: Delay says how long to wait before serving the request.
func ExampleLeakyBucket() {
	lim := core.MustNewMemory("printer", core.LeakyBucket(core.PerHour(1), core.Burst(3)))

	for range 4 {
		res, _ := lim.Allow(ctx, "printer:2")
		fmt.Println(res.Allowed, res.Delay.Round(time.Hour))
	}
	// Output:
	// true 0s
	// true 1h0m0s
	// true 2h0m0s
	// false 0s
}

// A customer may run three exports at a time, and a hundred per day.
func ExampleInFlight() {
	lim := core.MustNewMemory("exports", core.InFlight(3), core.FixedWindow(core.PerDay(100)))
	defer func() { _ = lim.Close() }()

	export := func(ctx context.Context, write func(context.Context)) {
		r, err := lim.Acquire(ctx, "customer:acme", 1)
		if err != nil || !r.Allowed {
			log.Print("come back later")
			return
		}
		defer func() { _ = r.Release(ctx) }() // even if ctx has ended
		ctx, cancel := r.Context(ctx)         // ends if the slot is lost, because others may write then
		defer cancel()
		write(ctx)
	}
	export(ctx, func(ctx context.Context) {
		res, _ := lim.Peek(ctx, "customer:acme")
		for each := range res.All() {
			fmt.Println(each.LimitName, each.Remaining)
		}
	})
	// Output:
	// inflight 2
	// fixed-1d 99
}

// A rate may come from a configuration file.
func ExampleParseRate() {
	rate, err := core.ParseRate("5/10s")
	fmt.Println(rate.Count(), rate.Period(), err)

	_, err = core.ParseRate("-1/m")
	fmt.Println(err)
	// Output:
	// 5 10s <nil>
	// redislimit: rate "-1/m": the count is -1, allowed is 0 to 1000000000
}

// A limit may come from a configuration file. In JSON, YAML, TOML and flags, a Limit is its text, too.
func ExampleParseLimit() {
	limit, err := core.ParseLimit("token_bucket 100/m  name=api burst=200")
	fmt.Println(limit, err)
	fmt.Println(limit == core.TokenBucket(core.PerMinute(100), core.Burst(200), core.LimitName("api")))

	_, err = core.ParseLimit("token_bucket 100/m burst=0")
	fmt.Println(err)
	// Output:
	// token_bucket 100/1m burst=200 name=api <nil>
	// true
	// redislimit: limit "token_bucket 100/m burst=0": burst=0: allowed is 1 to 1000000000
}

// The plans of customers are stored as texts. One customer has no limit, and one is suspended.
func ExampleUnlimited() {
	lim := core.MustNewMemory("api", core.TokenBucket(core.PerMinute(60)))
	for _, plan := range []string{"token_bucket 600/1m", "unlimited", "token_bucket 0/1m"} {
		limit, _ := core.ParseLimit(plan)
		limits, _ := lim.With(limit)
		res, err := limits.AllowN(context.Background(), "customer:acme", 100)
		fmt.Println(plan, res.Allowed, res.Unlimited(), res.RetryAfter == core.Never, err)
	}
	// Output:
	// token_bucket 600/1m true false false <nil>
	// unlimited true true false <nil>
	// token_bucket 0/1m false false true <nil>
}

// The burst is how many units are available at once, and the rate is how many in the long run.
func ExampleBurst() {
	for _, limit := range []core.Limit{
		core.TokenBucket(core.PerMinute(60)),                // 60 at once after a pause, then one per second
		core.TokenBucket(core.PerMinute(60), core.Burst(5)), // 5 at once after a pause, then one per second
		core.LeakyBucket(core.PerSecond(50)),                // 50 in the queue, one every 20 ms
	} {
		fmt.Println(limit, "capacity", limit.Capacity())
	}
	// Output:
	// token_bucket 60/1m capacity 60
	// token_bucket 60/1m burst=5 capacity 5
	// leaky_bucket 50/1s capacity 50
}

// A bucket with a LimitName keeps its used units when its period changes. Two limits with the same
// algorithm and period need different names.
func ExampleLimitName() {
	lim := core.MustNewMemory("api",
		core.GCRA(core.PerMinute(600), core.Burst(20), core.LimitName("burst")),
		core.GCRA(core.PerMinute(100), core.LimitName("sustained")))

	res, _ := lim.AllowN(ctx, "user:alice", 20)
	fmt.Println(res.LimitName, res.Remaining)
	// Output: burst 0
}

// A denial is a Result, not an error. An error says that the call was wrong, or that there is no
// decision.
func ExampleLimiter_Allow() {
	lim := core.MustNewMemory("api", core.FixedWindow(core.PerHour(1)))

	for _, key := range []string{"user:alice", "user:alice", "user:bob", ""} {
		res, err := lim.Allow(ctx, key)
		fmt.Println(key, res.Allowed, res.RetryAfter.Round(time.Hour), err)
	}
	// Output:
	// user:alice true 0s <nil>
	// user:alice false 1h0m0s <nil>
	// user:bob true 0s <nil>
	//  false 0s redislimit: the key must not be empty
}

// A request may cost more than one unit. A request that costs more than the capacity is never admitted.
func ExampleLimiter_AllowN() {
	lim := core.MustNewMemory("api", core.FixedWindow(core.PerHour(100)))

	for _, cost := range []int64{60, 60, 101} {
		res, _ := lim.AllowN(ctx, "user:alice", cost)
		fmt.Println(res.Allowed, res.Remaining, res.RetryAfter == core.Never)
	}
	// Output:
	// true 40 false
	// false 40 false
	// false 40 true
}

// Peek shows what a user has left, without charging anything, for instance on a status page.
func ExampleLimiter_Peek() {
	lim := core.MustNewMemory("api", core.FixedWindow(core.PerHour(100)))

	_, _ = lim.AllowN(ctx, "user:alice", 60)
	res, _ := lim.Peek(ctx, "user:alice")
	fmt.Printf("%d of %d left\n", res.Remaining, res.Limit)
	// Output: 40 of 100 left
}

// Wait paces a worker: the first two calls return at once, and further ones every 10 ms.
func ExampleLimiter_Wait() {
	lim := core.MustNewMemory("crawler", core.TokenBucket(core.PerSecond(100), core.Burst(2)))

	for page := range 4 {
		if _, err := lim.Wait(ctx, "example.org"); err != nil {
			log.Fatal(err)
		}
		fmt.Println("fetch page", page)
	}
	// Output:
	// fetch page 0
	// fetch page 1
	// fetch page 2
	// fetch page 3
}

// A worker takes as many jobs from a queue as are admitted.
func ExampleLimiter_AllowUpTo() {
	lim := core.MustNewMemory("imports", core.FixedWindow(core.PerHour(10)))
	queue := 12

	for range 2 {
		granted, res, err := lim.AllowUpTo(ctx, "partner", 7)
		if err != nil {
			log.Fatal(err)
		}
		queue -= int(granted)
		fmt.Println(granted, "jobs are done,", queue, "wait; the rest of the batch can wait for", res.RetryAfter.Round(time.Second))
	}
	// Output:
	// 7 jobs are done, 5 wait; the rest of the batch can wait for 0s
	// 3 jobs are done, 2 wait; the rest of the batch can wait for 1h0m0s
}

// A job waits for a slot, and stops if it loses the slot.
func ExampleLimiter_AcquireWait() {
	lim := core.MustNewMemory("reports", core.InFlight(1))
	defer func() { _ = lim.Close() }()

	p, err := lim.AcquireWait(ctx, "report:2025", 1)
	if err != nil {
		fmt.Println(err) // ctx has ended, or Redis does not answer
		return
	}
	defer func() { _ = p.Release(ctx) }()
	work, cancel := p.Context(ctx)
	defer cancel()
	select {
	case <-work.Done():
		fmt.Println("stop:", errors.Is(context.Cause(work), core.ErrSlotLost))
	case <-time.After(time.Millisecond):
		fmt.Println("done")
	}
	// Output: done
}

// The cost of a job is known when the job is done. Until then, an estimate is held.
func ExampleLimiter_Reserve() {
	lim := core.MustNewMemory("tokens", core.FixedWindow(core.PerHour(1000)))

	r, err := lim.Reserve(ctx, "user:alice", 500)
	if err != nil || !r.Allowed {
		log.Fatal("come back later")
	}
	others, _ := lim.Peek(ctx, "user:alice")
	fmt.Println("while it runs:", others.Remaining)

	if err := r.Settle(ctx, 120); err != nil {
		log.Print(err)
	}
	others, _ = lim.Peek(ctx, "user:alice")
	fmt.Println("then:", others.Remaining)
	// Output:
	// while it runs: 500
	// then: 880
}

// A request is charged to its user and to the user's organization, or to neither.
func ExampleAllowAll() {
	perUser := core.MustNewMemory("user", core.FixedWindow(core.PerHour(5)))
	perOrg := core.MustNewMemory("org", core.FixedWindow(core.PerHour(12)))

	for _, n := range []int64{4, 3} {
		res, err := core.AllowAll(ctx, n, perUser.On("user:alice"), perOrg.On("org:acme"))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(n, res.Allowed, res.LimiterName)
	}
	res, _ := perOrg.Peek(ctx, "org:acme")
	fmt.Println(res.Remaining)
	// Output:
	// 4 true user
	// 3 false user
	// 8
}

// An export counts against the limit of its customer, and takes one of the slots that all customers share. If
// the customer is over the limit, no slot stays taken. If no slot is free, the customer is not charged.
func ExampleAcquireAll() {
	perCustomer := core.MustNewMemory("exports", core.FixedWindow(core.PerHour(2)))
	running := core.MustNewMemory("running", core.InFlight(1))
	defer func() { _ = running.Close() }()

	start := func(customer string) *core.Permit {
		p, err := core.AcquireAll(ctx, 1, perCustomer.On(customer), running.On("exports"))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(customer, p.Allowed, p.LimiterName)
		return p
	}
	first := start("customer:acme")
	start("customer:globex") // denied: no slot is free
	_ = first.Release(ctx)   // the export is done: its slot is free, and it stays charged
	second := start("customer:globex")
	_ = second.Cancel(ctx) // nothing was exported: the slot is free, and nothing is charged
	for _, customer := range []string{"customer:acme", "customer:globex"} {
		res, _ := perCustomer.Peek(ctx, customer)
		fmt.Println(customer, "may start", res.Remaining)
	}
	// Output:
	// customer:acme true exports
	// customer:globex false running
	// customer:globex true exports
	// customer:acme may start 1
	// customer:globex may start 2
}

// An answer of a language model is one call, and costs a number of tokens that is known when the answer
// is complete.
func ExampleReserveAll() {
	tokens := core.MustNewMemory("tokens", core.FixedWindow(core.PerHour(1000)))
	calls := core.MustNewMemory("calls", core.FixedWindow(core.PerHour(100)))

	r, err := core.ReserveAll(ctx, 500, tokens.On("user:alice"), calls.On("user:alice").Cost(1))
	if err != nil || !r.Allowed {
		log.Fatal("come back later")
	}
	if err := r.Settle(ctx, 120); err != nil {
		log.Print(err)
	}
	for _, lim := range []*core.Limiter{tokens, calls} {
		res, _ := lim.Peek(ctx, "user:alice")
		fmt.Println(lim.Name(), res.Remaining)
	}
	// Output:
	// tokens 880
	// calls 99
}

// A job that costs more than was reserved, and more than the limit, leaves a debt.
func ExampleReservation_Settle() {
	lim := core.MustNewMemory("tokens", core.TokenBucket(core.PerHour(1000)))

	r, _ := lim.Reserve(ctx, "user:alice", 500)
	_ = r.Settle(ctx, 7000)

	res, _ := lim.AllowN(ctx, "user:alice", 500)
	fmt.Println(res.Allowed, res.RetryAfter.Round(time.Minute)) // until 6500 units have drained
	// Output: false 6h30m0s
}

// Keep renews the hold of work that takes longer than the hold.
func ExampleReservation_Keep() {
	lim := core.MustNewMemory("tokens", core.FixedWindow(core.PerHour(1000)), core.Hold(20*time.Millisecond))
	defer func() { _ = lim.Close() }()

	r, _ := lim.Reserve(ctx, "user:alice", 500)
	r.Keep()
	time.Sleep(50 * time.Millisecond) // the work
	fmt.Println(r.Settle(ctx, 120))
	// Output: <nil>
}

// Cancel gives back what was charged for work that was not done.
func ExamplePermit_Cancel() {
	lim := core.MustNewMemory("mails", core.FixedWindow(core.PerDay(10)))

	p, _ := lim.Acquire(ctx, "user:alice", 4)
	_ = p.Cancel(ctx)
	res, _ := lim.Peek(ctx, "user:alice")
	fmt.Println(res.Remaining)
	// Output: 10
}

// Reset makes the full limit available again, for instance at the request of a support desk.
func ExampleLimiter_Reset() {
	lim := core.MustNewMemory("api", core.FixedWindow(core.PerDay(10)))

	_, _ = lim.AllowN(ctx, "user:alice", 10)
	_ = lim.Reset(ctx, "user:alice")
	res, _ := lim.Allow(ctx, "user:alice")
	fmt.Println(res.Allowed, res.Remaining)
	// Output: true 9
}

// When a service starts, it checks whether Redis can decide. The service may run even if Redis cannot: the outage
// policy decides then.
func ExampleLimiter_Check() {
	lim := core.MustNew(rdb, "api", core.TokenBucket(core.PerMinute(100)))

	switch err := lim.Check(ctx); {
	case errors.Is(err, core.ErrUnavailable):
		log.Print("until this is repaired, the outage policy decides: ", err)
	case err != nil:
		log.Print("Redis can decide, but something should be changed: ", err)
	}
}

// Each customer has limits with their own numbers, which may change while the program runs.
func ExampleLimiter_With() {
	lim := core.MustNewMemory("api", core.TokenBucket(core.PerMinute(60)))

	for _, customer := range []struct {
		name      string
		perMinute int64
	}{{"acme", 250}, {"initech", 1000}} { // read from a database
		limits, err := lim.With(core.TokenBucket(core.PerMinute(customer.perMinute)))
		if err != nil {
			log.Fatal(err) // for instance for a negative rate
		}
		res, _ := limits.Allow(ctx, "customer:"+customer.name)
		fmt.Println(customer.name, res.Remaining, "of", res.Limit)
	}
	// Output:
	// acme 249 of 250
	// initech 999 of 1000
}

// A lease decides on a frequently used key with units that were reserved before, without asking Redis.
func ExampleLease() {
	lim := core.MustNew(rdb, "api", core.TokenBucket(core.PerSecond(50_000)), core.Lease(100*time.Millisecond))
	defer func() { _ = lim.Close() }() // gives back the units that were not spent

	res, err := lim.Allow(ctx, "tenant:acme")
	fmt.Println(res.Allowed, res.Source, err) // prints "true lease <nil>" from the ninth request within 100 ms
}

// All returns the Result of each limit. The Result itself is the one of the tightest limit.
func ExampleResult_All() {
	lim := core.MustNewMemory("api", core.TokenBucket(core.PerSecond(10)), core.FixedWindow(core.PerDay(5000)))

	res, _ := lim.Allow(ctx, "user:alice")
	fmt.Println("the tightest:", res.LimitName)
	for each := range res.All() {
		fmt.Printf("%s: %d of %d left\n", each.LimitName, each.Remaining, each.Limit)
	}
	// Output:
	// the tightest: token-1s
	// token-1s: 9 of 10 left
	// fixed-1d: 4999 of 5000 left
}

// The first denial locks a client out for one minute, and the next denial for one hour.
func ExampleBan() {
	now := time.Date(2026, 11, 12, 9, 0, 0, 0, time.UTC)
	lim := core.MustNewMemory("logins", core.FixedWindow(core.Per(2, 10*time.Second)), core.Ban(time.Minute, time.Hour),
		core.Clock(func() time.Time { return now }))

	for _, wait := range []time.Duration{0, 0, 0, 30 * time.Second, 30 * time.Second, 0, 0} {
		now = now.Add(wait)
		res, _ := lim.Allow(ctx, "ip:203.0.113.7")
		fmt.Println(now.Format("15:04:05"), res.Allowed, res.Banned, res.RetryAfter)
	}
	// Output:
	// 09:00:00 true false 0s
	// 09:00:00 true false 0s
	// 09:00:00 false true 1m0s
	// 09:00:30 false true 30s
	// 09:01:00 true false 0s
	// 09:01:00 true false 0s
	// 09:01:00 false true 1h0m0s
}

// A support desk locks out a client, and lets it in again. Ban() without times bans no client
// automatically.
func ExampleLimiter_Block() {
	lim := core.MustNewMemory("api", core.TokenBucket(core.PerMinute(100)), core.Ban())
	show := func() {
		res, _ := lim.Allow(ctx, "user:mallory")
		fmt.Println(res.Allowed, res.Banned)
	}

	show()
	_ = lim.Block(ctx, "user:mallory", 24*time.Hour)
	show()
	_ = lim.Unblock(ctx, "user:mallory")
	show()
	// Output:
	// true false
	// false true
	// true false
}

// With FailClosed, no login is tried while Redis cannot count it.
func ExampleFailClosed() {
	lim := core.MustNew(rdb, "logins", core.SlidingWindowLog(core.PerMinute(5)), core.FailClosed())

	if _, err := lim.Allow(ctx, "user:alice"); errors.Is(err, core.ErrUnavailable) {
		fmt.Println("try again soon")
	}
}

// A limit that only smooths traffic may admit everything while Redis is down.
func ExampleFailOpen() {
	_ = core.MustNew(rdb, "search", core.TokenBucket(core.PerMinute(100)), core.FailOpen(), core.Timeout(50*time.Millisecond))
}

// While Redis is down, each of ten processes enforces a tenth of the limit. If the number of processes
// varies, give the largest.
func ExampleProcesses() {
	_ = core.MustNew(rdb, "api", core.TokenBucket(core.PerMinute(100)), core.FailLocal(), core.Processes(10))
}

// Metrics count events, which do not contain the key.
func ExampleObserve() {
	var denied atomic.Int64
	lim := core.MustNewMemory("api", core.FixedWindow(core.PerHour(2)), core.Observe(func(_ context.Context, e core.Event) {
		if e.Kind == core.EventDecision && !e.Result.Allowed {
			denied.Add(1)
		}
	}))
	for range 5 {
		_, _ = lim.Allow(ctx, "user:alice")
	}
	fmt.Println(denied.Load(), "denied")
	// Output: 3 denied
}

// ObserveKeys also passes the key, for records that are kept apart from metrics, such as an audit of
// logins.
func ExampleObserveKeys() {
	lim := core.MustNewMemory("login", core.FixedWindow(core.PerHour(2)), core.ObserveKeys(func(_ context.Context, key string, e core.Event) {
		if e.Kind == core.EventDecision && !e.Result.Allowed {
			fmt.Println("denied:", key)
		}
	}))
	for range 3 {
		_, _ = lim.Allow(ctx, "user:alice")
	}
	// Output: denied: user:alice
}

// A Limiter logs a line when Redis fails, further lines while the outage lasts, at most one per minute, and a
// line when Redis answers again.
func ExampleLogger() {
	logger := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	_ = core.MustNew(rdb, "api", core.TokenBucket(core.PerMinute(100)), core.Logger(logger))
}
