package docs_test

import (
	"context"
	"fmt"
	"slices"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
)

// The Examples in this file are the code for package core that README.md and docs/ show.

func Example_contextTimeoutEnabled() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})

	_ = rdb
}

func Example_calendar() {
	limit := core.FixedWindow(core.PerMonth(10_000), core.In("Europe/Berlin"))
	fmt.Println(limit.Name())
	// Output: month-Europe.Berlin
}

func Example_identifiesACount() {
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		panic(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = rdb.Close() }()
	ctx := context.Background()

	lim := core.MustNew(rdb, "api", core.TokenBucket(core.PerMinute(100)), core.FixedWindow(core.PerDay(5000), core.LimitName("quota")))
	res, err := lim.Allow(ctx, "user:alice")

	fmt.Println(res.Allowed, err)
	for _, key := range slices.Sorted(slices.Values(server.Keys())) {
		fmt.Println(key)
	}
	_ = lim.Close()
	// Output:
	// true <nil>
	// rl:api:{user:alice}:quota~fixed-1d
	// rl:api:{user:alice}:token-1m
}
