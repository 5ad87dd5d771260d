package core_test

import (
	"context"
	"fmt"
	"log"

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

func ExampleParseRate() {
	rate, err := core.ParseRate("5/10s")
	fmt.Println(rate.Count(), rate.Period(), err)

	_, err = core.ParseRate("0/m")
	fmt.Println(err)
	// Output:
	// 5 10s <nil>
	// redislimit: rate "0/m": the count is 0, allowed is 1 to 1000000000
}

// A request may cost more than one unit.
func ExampleLimiter_AllowN() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	lim := core.MustNew(rdb, "reports", core.TokenBucket(core.PerHour(1000)))

	res, err := lim.AllowN(context.Background(), "user:alice", 50)
	if err == nil && !res.Allowed {
		fmt.Println("a report of this size can start in", res.RetryAfter)
	}
}

// Peek shows how a user stands without charging anything, as a status page does.
func ExampleLimiter_Peek() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	lim := core.MustNew(rdb, "api", core.TokenBucket(core.PerMinute(100)))

	if res, err := lim.Peek(context.Background(), "user:alice"); err == nil {
		fmt.Printf("%d of %d left\n", res.Remaining, res.Limit)
	}
}

// Reset forgives, as a support desk does.
func ExampleLimiter_Reset() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	lim := core.MustNew(rdb, "api", core.TokenBucket(core.PerMinute(100)))

	if err := lim.Reset(context.Background(), "user:alice"); err != nil {
		log.Print(err)
	}
}

// All shows each of several limits.
func ExampleResult_All() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	lim := core.MustNew(rdb, "api", core.TokenBucket(core.PerSecond(10)), core.FixedWindow(core.PerDay(5000)))

	res, err := lim.Allow(context.Background(), "user:alice")
	if err != nil {
		log.Fatal(err)
	}
	for each := range res.All() {
		fmt.Printf("%s: %d of %d left\n", each.Name, each.Remaining, each.Limit)
	}
}
