package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/go-chi/httprate"
	"github.com/redis/go-redis/v9"
	"github.com/sethvargo/go-limiter/memorystore"
	ulule "github.com/ulule/limiter/v3"
	ululememory "github.com/ulule/limiter/v3/drivers/store/memory"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/mini"
)

// BenchmarkMemory measures decisions in the memory of the process over 10,000 keys, for this library and its
// peers, with one goroutine and with one for each core.
func BenchmarkMemory(b *testing.B) {
	keys := make([]string, 10_000)
	for i := range keys {
		keys[i] = fmt.Sprintf("user:%05d", i)
	}
	for _, c := range []struct {
		name string
		make func(*testing.B) limiter
	}{
		{"TokenBucket", inMemory(core.TokenBucket(rate(plenty())))},
		{"FixedWindow", inMemory(core.FixedWindow(rate(plenty())))},
		{"go-limiter", goLimiterInMemory},
		{"ulule", ululeInMemory},
		{"httprate", httprateInMemory},
	} {
		lim := c.make(b)
		b.Run(c.name+"/one", func(b *testing.B) {
			attempt := lim()
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if allowed, err := attempt(b.Context(), keys[i%len(keys)]); err != nil || !allowed {
					b.Fatal(allowed, err)
				}
			}
		})
		b.Run(c.name+"/parallel", func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				attempt := lim()
				for i := rand.IntN(len(keys)); pb.Next(); i++ {
					if allowed, err := attempt(b.Context(), keys[i%len(keys)]); err != nil || !allowed {
						b.Error(allowed, err)
						return
					}
				}
			})
		})
	}
}

func inMemory(option core.Option) func(*testing.B) limiter {
	return func(*testing.B) limiter { return allow(core.MustNewMemory("api", option)) }
}

func goLimiterInMemory(b *testing.B) limiter {
	b.Helper()
	store, err := memorystore.New(&memorystore.Config{Tokens: uint64(plenty().count), Interval: plenty().period})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = store.Close(context.Background()) })
	return takeFrom(store)
}

func ululeInMemory(*testing.B) limiter {
	lim := ulule.New(ululememory.NewStore(), ulule.Rate{Limit: plenty().count, Period: plenty().period})
	return shared(func(ctx context.Context, key string) (bool, error) {
		res, err := lim.Get(ctx, key)
		return !res.Reached, err
	})
}

// httprateInMemory uses httprate's own counter and its limiter's lock.
func httprateInMemory(*testing.B) limiter {
	lim := httprate.NewRateLimiter(int(plenty().count), plenty().period)
	return func() decide {
		headers, r := discard{http.Header{}}, newRequest()
		return func(_ context.Context, key string) (bool, error) { return !lim.OnLimit(headers, r, key), nil }
	}
}

// BenchmarkDenyCache measures the denial of a key that was denied just before. One decision per second goes to
// Redis.
func BenchmarkDenyCache(b *testing.B) {
	server := mini.Redis(b)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	b.Cleanup(func() { _ = client.Close() })
	lim := core.MustNew(client, "api", core.TokenBucket(core.PerDay(1)), core.Timeout(10*time.Second), core.FailClosed())
	denials := func(b *testing.B, next func() bool) {
		b.Helper()
		for next() {
			if res, err := lim.Allow(b.Context(), "user:alice"); err != nil || res.Allowed {
				b.Error(res, err)
				return
			}
		}
	}
	for range 2 { // the first is admitted, the second denied
		if _, err := lim.Allow(b.Context(), "user:alice"); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("one", func(b *testing.B) {
		b.ReportAllocs()
		denials(b, b.Loop)
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) { denials(b, pb.Next) })
	})
}
