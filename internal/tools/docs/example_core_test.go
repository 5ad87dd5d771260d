package docs_test

import (
	"fmt"

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
