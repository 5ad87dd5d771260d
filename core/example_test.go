package core_test

import (
	"context"
	"fmt"
	"log"
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

// Behind the same names stand a server, a Cluster or what Sentinel says is the
// master: any client of go-redis is a Client.
func ExampleClient() {
	var server, cluster, sentinel core.Client
	server = redis.NewClient(&redis.Options{Addr: "redis.internal:6379"})
	cluster = redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"node-1.internal:6379", "node-2.internal:6379"}})
	sentinel = redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "limits", SentinelAddrs: []string{"sentinel.internal:26379"}})

	for _, client := range []core.Client{server, cluster, sentinel} {
		lim := core.MustNew(client, "api", core.TokenBucket(core.PerMinute(100)))
		fmt.Println(lim.Name(), lim.Limits())
	}
	// Output:
	// api [token_bucket 100/1m]
	// api [token_bucket 100/1m]
	// api [token_bucket 100/1m]
}

// Limits and settings are options alike, so that a program can collect them.
func ExampleOption() {
	opts := []core.Option{core.TokenBucket(core.PerSecond(10), core.Burst(30))}
	if daily := int64(5000); daily > 0 { // of a configuration file, say
		opts = append(opts, core.FixedWindow(core.PerDay(daily), core.Name("daily")))
	}
	lim, err := core.NewMemory("api", opts...)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(lim.Limits())
	// Output: [token_bucket 10/1s fixed_window 5000/1d]
}

// Two applications use one Redis. Their limiters have the same name, and share
// nothing.
// Options share settings between limiters.
func ExampleOptions() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	shared := core.Options(core.Prefix("shop"), core.Timeout(200*time.Millisecond), core.FailClosed())
	logins := core.MustNew(rdb, "logins", core.SlidingWindowLog(core.PerHour(5)), shared)
	payments := core.MustNew(rdb, "payments", core.TokenBucket(core.PerMinute(10)), shared)
	fmt.Println(logins.Name(), payments.Name())
	// Output: logins payments
}

func ExamplePrefix() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	shop := core.MustNew(rdb, "api", core.TokenBucket(core.PerMinute(100)), core.Prefix("shop"))
	blog := core.MustNew(rdb, "api", core.TokenBucket(core.PerMinute(100)), core.Prefix("blog"))
	fmt.Println(shop.Name(), blog.Name()) // their keys begin with shop:api: and blog:api:
	// Output: api api
}

// A service that many clients hammer remembers more of those denied.
func ExampleDenyCache() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	_ = core.MustNew(rdb, "api", core.TokenBucket(core.PerMinute(100)), core.DenyCache(100_000))
}

// Each decision makes a round trip of its own, so that hooks of the client, for
// tracing, see each with the context of its caller.
func ExampleCoalesce() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
	_ = core.MustNew(rdb, "api", core.TokenBucket(core.PerMinute(100)), core.Coalesce(1))
}

// Only two keys are remembered. A third takes the place of the one that is used
// least, and never that of one used up.
func ExampleEntries() {
	lim, err := core.NewMemory("api", core.FixedWindow(core.PerHour(3)), core.Entries(2))
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	_, _ = lim.AllowN(ctx, "user:alice", 3)
	_, _ = lim.AllowN(ctx, "user:bob", 1)
	_, _ = lim.AllowN(ctx, "user:carol", 1)

	for _, key := range []string{"user:alice", "user:bob", "user:carol"} {
		res, _ := lim.Peek(ctx, key)
		fmt.Println(key, res.Remaining)
	}
	// Output:
	// user:alice 0
	// user:bob 3
	// user:carol 2
}

// Jobs run for ten minutes at most. Those of a process that dies are charged then.
func ExampleHold() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	lim := core.MustNew(rdb, "jobs", core.SlidingWindowLog(core.PerDay(1000)), core.Hold(10*time.Minute))

	res, err := lim.Reserve(context.Background(), "user:alice", 20)
	fmt.Println(res.Allowed, err)
}
