package recipes_test

import (
	"context"
	"fmt"
	"time"

	"github.com/redislimit/redislimit/core"
)

func Example_bans() {
	lim, err := core.New(rdb, "login", core.FailClosed(),
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
