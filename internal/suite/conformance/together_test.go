package conformance_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/hook"
	"github.com/redislimit/redislimit/internal/suite/conformance"
	"github.com/redislimit/redislimit/internal/testkit/mini"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

// TestTogether has limiters of one server decide together by one script, over a client of go-redis's own.
func TestTogether(t *testing.T) {
	t.Run("Redis", func(t *testing.T) {
		t.Parallel()
		server := redistest.Server(t)
		direct := server.Client(t)
		conformance.Together(t, func(t *testing.T, run func(*testing.T, conformance.Store)) {
			if err := direct.FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			client := server.Client(t)
			driven := conformance.NewDriven(client)
			run(t, counted(client, conformance.Store{Advance: driven.Advance, Clock: driven.Now, Redis: direct}, driven))
		})
	})
	t.Run("Miniredis", func(t *testing.T) {
		conformance.Together(t, func(t *testing.T, run func(*testing.T, conformance.Store)) {
			m := mini.Redis(t)
			var now atomic.Int64
			now.Store(1_800_000_012_345_678)
			clock := func() time.Time { return time.UnixMicro(now.Load()) }
			m.SetTime(clock())
			direct, client := redis.NewClient(&redis.Options{Addr: m.Addr()}), redis.NewClient(&redis.Options{Addr: m.Addr()})
			defer func() { _, _ = direct.Close(), client.Close() }()
			run(t, counted(client, conformance.Store{
				Advance: func(d time.Duration) {
					now.Add(d.Microseconds())
					m.SetTime(clock())
				},
				Clock: clock, ForgetsByClock: true, Redis: direct,
			}))
		})
	})
}

// counted is s with Limiters over client, whose commands are counted before the hooks.
func counted(client *redis.Client, s conformance.Store, hooks ...redis.Hook) conformance.Store {
	count := new(conformance.Counter)
	client.AddHook(count)
	for _, h := range hooks {
		client.AddHook(h)
	}
	s.Commands = count.Sent
	s.New = func(name string, opts ...core.Option) (*core.Limiter, error) {
		return core.New(client, name, append(append(onlyRedis, hook.Wall(s.Clock).(core.Option)), opts...)...)
	}
	return s
}
