package conformance_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/inside"
	"github.com/redislimit/redislimit/internal/suite/conformance"
	"github.com/redislimit/redislimit/internal/testkit/mini"
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
		m := mini.Redis(t)
		var now atomic.Int64
		now.Store(1_800_000_012_345_678)
		clock := func() time.Time { return time.UnixMicro(now.Load()) }
		m.SetTime(clock())
		client := redis.NewClient(&redis.Options{Addr: m.Addr()})
		defer func() { _ = client.Close() }()
		run(t, conformance.Store{
			New: func(name string, opts ...core.Option) (*core.Limiter, error) {
				return core.New(client, name, append(append(onlyRedis, inside.Core.Wall(clock)), opts...)...)
			},
			Advance: func(d time.Duration) {
				now.Add(d.Microseconds())
				m.SetTime(clock())
			},
			ForgetsByClock: true,
			Redis:          client,
		})
	})
}

func TestMemory(t *testing.T) {
	exercise(t, conformance.Runs(t), func(t *testing.T, run func(*testing.T, conformance.Store)) {
		synctest.Test(t, func(t *testing.T) {
			run(t, conformance.Store{New: core.NewMemory, Advance: time.Sleep})
		})
	})
}

func TestCluster(t *testing.T) {
	t.Parallel()
	client := redistest.ClusterClient(t, redistest.Cluster(t))
	exercise(t, conformance.Runs(t)/4+1, func(t *testing.T, run func(*testing.T, conformance.Store)) {
		err := client.ForEachMaster(context.Background(), func(ctx context.Context, node *redis.Client) error {
			return node.FlushAll(ctx).Err()
		})
		if err != nil {
			t.Fatal(err)
		}
		run(t, onRedis(client))
	})
}

func TestRedis(t *testing.T) {
	t.Parallel()
	client := redistest.Server(t).Client(t)
	exercise(t, conformance.Runs(t), func(t *testing.T, run func(*testing.T, conformance.Store)) {
		if err := client.FlushAll(context.Background()).Err(); err != nil {
			t.Fatal(err)
		}
		run(t, onRedis(client))
	})
}

// onlyRedis are the options with which each decision is by Redis: there is no deny
// cache, whose clock is not the driven one, and no fallback.
var onlyRedis = slices.Clip([]core.Option{core.DenyCache(0), core.FailClosed(), core.Timeout(time.Minute)})

// onRedis is the Store on a real Redis with a driven clock.
func onRedis(client redis.UniversalClient) conformance.Store {
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
