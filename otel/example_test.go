package otellimit_test

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	otellimit "github.com/redislimit/redislimit/otel"
)

func Example() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
	lim := core.MustNew(rdb, "api", core.TokenBucket(core.PerMinute(100)), otellimit.Observe())

	_, _ = lim.Allow(context.Background(), "user:alice")
}
