package conformance_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/conformance"
	"github.com/redislimit/redislimit/internal/embedded"
	"github.com/redislimit/redislimit/internal/redistest"
)

func TestMiniredis(t *testing.T) {
	conformance.Exercise(t, func(t *testing.T, run func(*testing.T, conformance.Store)) {
		m, err := embedded.Start()
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		now := time.UnixMicro(1_800_000_012_345_678)
		m.SetTime(now)
		client := redis.NewClient(&redis.Options{Addr: m.Addr()})
		defer func() { _ = client.Close() }()
		run(t, conformance.Store{
			New: func(name string, opts ...core.Option) (*core.Limiter, error) { return core.New(client, name, opts...) },
			Advance: func(d time.Duration) {
				now = now.Add(d)
				m.SetTime(now)
			},
			Redis: client,
		})
	})
}

func TestRedis(t *testing.T) {
	client := redistest.Server(t).Client(t)
	conformance.Exercise(t, func(t *testing.T, run func(*testing.T, conformance.Store)) {
		if err := client.FlushAll(context.Background()).Err(); err != nil {
			t.Fatal(err)
		}
		driven := conformance.NewDriven(client)
		run(t, conformance.Store{
			New:     func(name string, opts ...core.Option) (*core.Limiter, error) { return core.New(driven, name, opts...) },
			Advance: driven.Advance,
			Redis:   client,
		})
	})
}
