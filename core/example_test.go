package core_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
)

func Example() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	lim := core.MustNew(rdb, "api", core.TokenBucket(core.PerMinute(100)))

	res, err := lim.Allow(context.Background(), "user:alice")
	switch {
	case err != nil:
		log.Print(err) // Redis could not answer
	case res.Allowed:
		fmt.Println(res.Remaining, "left")
	default:
		fmt.Println("try again in", res.RetryAfter)
	}
}

// Several limits at once: a request is charged to all of them or to none.
func ExampleNew() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	lim, err := core.New(rdb, "public-api",
		core.TokenBucket(core.PerSecond(10), core.Burst(30)),
		core.FixedWindow(core.PerDay(5000), core.Aligned()))
	if err != nil {
		log.Fatal(err)
	}
	for _, limit := range lim.Limits() {
		fmt.Println(limit.Name(), limit)
	}
	// Output:
	// token-1s token_bucket 10/1s
	// aligned-1d fixed_window 5000/1d
}

func ExampleMustNew() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	lim := core.MustNew(rdb, "logins", core.FixedWindow(core.PerMinute(5)), core.Prefix("shop"))
	fmt.Println(lim.Name(), lim.Limits())
	// Output: logins [fixed_window 5/1m]
}

// Logins are not tried while nobody can count them.
func ExampleFailClosed() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	lim := core.MustNew(rdb, "logins", core.SlidingWindowLog(core.PerMinute(5)), core.FailClosed())

	if _, err := lim.Allow(context.Background(), "user:alice"); errors.Is(err, core.ErrUnavailable) {
		fmt.Println("try again soon")
	}
}

// Each of four processes enforces a quarter of the limit while Redis is down.
func ExampleFailLocal() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	_ = core.MustNew(rdb, "api", core.TokenBucket(core.PerMinute(100)), core.FailLocal(), core.Replicas(4))
}

// What only smooths traffic may let everything pass while Redis is down.
func ExampleFailOpen() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	_ = core.MustNew(rdb, "search", core.TokenBucket(core.PerMinute(100)), core.FailOpen(), core.Timeout(50*time.Millisecond))
}

func ExampleObserve() {
	var denied atomic.Int64
	lim, err := core.NewMemory("api", core.FixedWindow(core.PerHour(2)),
		core.Observe(func(_ context.Context, e core.Event) {
			if e.Kind == core.EventDecision && !e.Result.Allowed {
				denied.Add(1)
			}
		}))
	if err != nil {
		log.Fatal(err)
	}
	for range 5 {
		_, _ = lim.Allow(context.Background(), "user:alice")
	}
	fmt.Println(denied.Load(), "denied")
	// Output: 3 denied
}

func ExampleParseRate() {
	rate, err := core.ParseRate("5/10s")
	fmt.Println(rate.Count(), rate.Period(), err)

	_, err = core.ParseRate("0/m")
	fmt.Println(err)
	// Output:
	// 5 10s <nil>
	// redislimit: rate "0/m": the count is 0, allowed is 1 to 1000000000
}

// NewMemory needs no Redis: for tests, and for services of one process.
func ExampleNewMemory() {
	lim, err := core.NewMemory("uploads", core.FixedWindow(core.PerHour(3)))
	if err != nil {
		log.Fatal(err)
	}
	for range 4 {
		res, _ := lim.Allow(context.Background(), "user:alice")
		fmt.Println(res.Allowed, res.Remaining)
	}
	// Output:
	// true 2
	// true 1
	// true 0
	// false 0
}

// newLimiter stands for a Limiter made with New: all methods are the same.
func newLimiter(opts ...core.Option) *core.Limiter {
	lim, err := core.NewMemory("example", opts...)
	if err != nil {
		log.Fatal(err)
	}
	return lim
}

// A request may cost more than one unit.
func ExampleLimiter_AllowN() {
	lim := newLimiter(core.FixedWindow(core.PerHour(100)))

	res, _ := lim.AllowN(context.Background(), "user:alice", 60)
	fmt.Println(res.Allowed, res.Remaining)
	res, _ = lim.AllowN(context.Background(), "user:alice", 60)
	fmt.Println(res.Allowed, res.Remaining, res.RetryAfter > 59*time.Minute)
	res, _ = lim.AllowN(context.Background(), "user:alice", 101)
	fmt.Println(res.Allowed, res.RetryAfter == core.Never)
	// Output:
	// true 40
	// false 40 true
	// false true
}

// Peek shows how a user stands without charging anything, as a status page does.
func ExampleLimiter_Peek() {
	lim := newLimiter(core.FixedWindow(core.PerHour(100)))

	_, _ = lim.AllowN(context.Background(), "user:alice", 60)
	res, _ := lim.Peek(context.Background(), "user:alice")
	fmt.Printf("%d of %d left\n", res.Remaining, res.Limit)
	// Output: 40 of 100 left
}

// Wait paces a worker: here two go at once, and then one every 10 ms.
func ExampleLimiter_Wait() {
	lim := newLimiter(core.TokenBucket(core.PerSecond(100), core.Burst(2)))

	for range 5 {
		if err := lim.Wait(context.Background(), "crawler"); err != nil {
			log.Fatal(err)
		}
		fmt.Println("fetch a page")
	}
	// Output:
	// fetch a page
	// fetch a page
	// fetch a page
	// fetch a page
	// fetch a page
}

// Refund gives back what was charged for work that was not done.
func ExampleLimiter_Refund() {
	lim := newLimiter(core.FixedWindow(core.PerDay(10)))
	ctx := context.Background()

	res, _ := lim.AllowN(ctx, "user:alice", 4)
	if err := lim.Refund(ctx, "user:alice", res); err != nil {
		log.Fatal(err)
	}
	res, _ = lim.Peek(ctx, "user:alice")
	fmt.Println(res.Remaining)
	// Output: 10
}

// Reset forgives, as a support desk does.
func ExampleLimiter_Reset() {
	lim := newLimiter(core.FixedWindow(core.PerDay(10)))
	ctx := context.Background()

	_, _ = lim.AllowN(ctx, "user:alice", 10)
	if err := lim.Reset(ctx, "user:alice"); err != nil {
		log.Fatal(err)
	}
	res, _ := lim.Allow(ctx, "user:alice")
	fmt.Println(res.Allowed, res.Remaining)
	// Output: true 9
}

// All shows each of several limits.
func ExampleResult_All() {
	lim := newLimiter(core.TokenBucket(core.PerSecond(10)), core.FixedWindow(core.PerDay(5000)))

	res, _ := lim.Allow(context.Background(), "user:alice")
	fmt.Printf("the tightest: %s\n", res.Name)
	for each := range res.All() {
		fmt.Printf("%s: %d of %d left\n", each.Name, each.Remaining, each.Limit)
	}
	// Output:
	// the tightest: token-1s
	// token-1s: 9 of 10 left
	// fixed-1d: 4999 of 5000 left
}

// A leaky bucket admits a burst and spreads it: each request is told how long to
// wait for its turn.
func ExampleLeakyBucket() {
	lim := newLimiter(core.LeakyBucket(core.Per(1, time.Hour), core.Burst(3)))

	for range 4 {
		res, _ := lim.Allow(context.Background(), "printer")
		fmt.Println(res.Allowed, res.Delay.Round(time.Hour))
	}
	// Output:
	// true 0s
	// true 1h0m0s
	// true 2h0m0s
	// false 0s
}

// A sliding window log is exact: in no minute, wherever it begins, more than five.
func ExampleSlidingWindowLog() {
	lim := newLimiter(core.SlidingWindowLog(core.PerMinute(5)))

	res, _ := lim.AllowN(context.Background(), "login:alice", 5)
	fmt.Println(res.Allowed, res.Remaining)
	// Output: true 0
}

// A sliding window counter holds large limits in little memory.
func ExampleSlidingWindowCounter() {
	lim := newLimiter(core.SlidingWindowCounter(core.PerDay(1_000_000)))

	res, _ := lim.Allow(context.Background(), "tenant:acme")
	fmt.Println(res.Remaining)
	// Output: 999999
}

// Ten a second on average, thirty at once.
func ExampleTokenBucket() {
	lim := newLimiter(core.TokenBucket(core.PerSecond(10), core.Burst(30)))

	res, _ := lim.AllowN(context.Background(), "user:alice", 30)
	fmt.Println(res.Allowed)
	// Output: true
}

// GCRA admits as a token bucket does, from a single instant.
func ExampleGCRA() {
	lim := newLimiter(core.GCRA(core.PerMinute(60), core.Burst(5)))

	res, _ := lim.Allow(context.Background(), "device:17")
	fmt.Println(res.Remaining, res.ResetAfter)
	// Output: 4 1s
}

// 5000 a calendar day (UTC), whenever the first request came.
func ExampleFixedWindow() {
	lim := newLimiter(core.FixedWindow(core.PerDay(5000), core.Aligned(), core.Name("daily")))

	res, _ := lim.Allow(context.Background(), "tenant:acme")
	fmt.Println(res.Name, res.Remaining)
	// Output: daily 4999
}
