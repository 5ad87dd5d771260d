package docs_test

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
)

// These Examples are the code about package core that README.md and docs/ show.

func Example_contextTimeoutEnabled() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})

	_ = rdb
}

func Example_calendar() {
	limit := core.FixedWindow(core.PerMonth(10_000), core.In("Europe/Berlin"))
	fmt.Println(limit.Name())
	// Output: month-Europe.Berlin
}

func Example_bans() {
	lim, err := core.New(rdb, "login",
		core.SlidingWindowLog(core.Per(5, 15*time.Minute)),
		core.Ban(10*time.Minute, time.Hour, 24*time.Hour))
	if err != nil {
		panic(err)
	}
	for range 6 {
		res, err := lim.Allow(context.Background(), "ip:192.0.2.1")
		fmt.Println(res.Allowed, res.Banned, res.RetryAfter.Round(time.Minute), err)
	}
	// Output:
	// true false 0s <nil>
	// true false 0s <nil>
	// true false 0s <nil>
	// true false 0s <nil>
	// true false 0s <nil>
	// false true 15m0s <nil>
}
