package conformance_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/inside"
	"github.com/redislimit/redislimit/internal/suite/conformance"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/mini"
	"github.com/redislimit/redislimit/internal/testkit/redisclient"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

// exercise runs the whole suite, with so many random histories.
func exercise(t *testing.T, runs int, open conformance.Opener) {
	t.Helper()
	conformance.Exercise(t, open)
	t.Run("Properties", func(t *testing.T) { conformance.Properties(t, open, runs) })
}

func TestMiniredis(t *testing.T) {
	exercise(t, conformance.Runs(t)/4+1, func(t *testing.T, run func(*testing.T, conformance.Store)) {
		addr, now, advance := mini.Driven(t)
		client := redisclient.New(t, &redis.Options{Addr: addr})
		defer func() { _ = client.Close() }()
		run(t, conformance.Store{
			New: func(name string, opts ...core.Option) (*core.Limiter, error) {
				return core.New(client, name, append(append(onlyRedis, inside.Core.Wall(now)), opts...)...)
			},
			Advance:        advance,
			ForgetsByClock: true,
			Redis:          client,
		})
	})
}

func TestMemory(t *testing.T) {
	exercise(t, conformance.Runs(t), func(t *testing.T, run func(*testing.T, conformance.Store)) {
		synctest.Test(t, func(t *testing.T) {
			run(t, conformance.Store{New: core.NewMemory, Advance: time.Sleep, ForgetsByClock: true})
		})
	})
}

func TestCluster(t *testing.T) {
	t.Parallel()
	client := redistest.ClusterClient(t, redistest.Cluster(t))
	exercise(t, conformance.Runs(t)/4+1, func(t *testing.T, run func(*testing.T, conformance.Store)) {
		run(t, onRedis(t, client))
	})
}

func TestRedis(t *testing.T) {
	t.Parallel()
	client := redistest.Server(t).Client(t)
	exercise(t, conformance.Runs(t), func(t *testing.T, run func(*testing.T, conformance.Store)) {
		run(t, onRedis(t, client))
	})
}

// onlyRedis are the options with which each decision is by Redis: there is no deny
// cache, whose clock is not the driven one, and no fallback.
var onlyRedis = slices.Clip([]core.Option{core.DenyCache(0), core.FailClosed(), core.Timeout(time.Minute)})

// onRedis is the Store on a real Redis, empty, with a driven clock.
func onRedis(t *testing.T, client redis.UniversalClient) conformance.Store {
	t.Helper()
	check.Need(t, conformance.OnEach(t.Context(), client, func(ctx context.Context, node redis.UniversalClient) error { return node.FlushAll(ctx).Err() }))
	driven := conformance.NewDriven(client)
	return conformance.Store{
		New: func(name string, opts ...core.Option) (*core.Limiter, error) {
			return core.New(driven, name, append(append(onlyRedis, driven.Wall()), opts...)...)
		},
		Advance: driven.Advance,
		Clock:   driven.Now,
		Redis:   client,
	}
}
