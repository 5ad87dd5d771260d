package conformance

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
)

// All runs the whole suite, with the given number of random histories.
func All(t *testing.T, runs int, open Opener) {
	t.Helper()
	Exercise(t, open)
	t.Run("Properties", func(t *testing.T) { Properties(t, open, runs) })
}

// OnlyRedis are the options with which Redis makes each decision. There is no fallback, and no deny cache, whose clock
// would not be the driven one.
var OnlyRedis = slices.Clip([]core.Option{core.DenyCache(0), core.FailClosed(), core.Timeout(time.Minute)})

// OnRedis returns a Store on a real Redis, which it empties, with a driven clock.
func OnRedis(t *testing.T, client redis.UniversalClient) Store {
	t.Helper()
	check.Need(t, OnEach(t.Context(), client, func(ctx context.Context, node redis.UniversalClient) error { return node.FlushAll(ctx).Err() }))
	driven := NewDriven(client)
	return Store{
		New: func(name string, opts ...core.Option) (*core.Limiter, error) {
			return core.New(driven, name, append(append(OnlyRedis, driven.Wall()), opts...)...)
		},
		Advance: driven.Advance,
		Clock:   driven.Now,
		Redis:   client,
	}
}
