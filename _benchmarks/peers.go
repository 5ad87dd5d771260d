package main

import (
	"context"
	"strings"
	"time"

	"github.com/go-redis/redis_rate/v10"
	kudari "github.com/krishna-kudari/ratelimit"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/goredisstore.v9"
	ulule "github.com/ulule/limiter/v3"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"
)

// peers returns the other libraries. Each is used as its documentation recommends, with the same limit as this
// library.
func peers() []*contender {
	return []*contender{
		{name: "redis_rate", kind: peer, everyday: true, limits: true, make: redisRate},
		{name: "redis_rate, AutoPipeline", kind: peer, everyday: true, limits: true, make: redisRatePipelined},
		{name: "rueidislimiter, rewritten", kind: peer, everyday: true, limits: true, make: rueidisWindow},
		{name: "ulule/limiter", kind: peer, everyday: true, limits: true, make: ululeLimiter},
		{name: "throttled", kind: peer, everyday: true, limits: true, make: throttledGCRA, excuses: gaveUp},
		{name: "go-chi/httprate", kind: peer, everyday: true, limits: true, make: httprateLimiter, only: isSingle},
		{name: "go-redisstore", kind: peer, everyday: true, limits: true, make: redisstoreKept, only: isSingle},
		{name: "go-redisstore, its own pool", kind: peer, limits: true, make: redisstoreOwn, excuses: poolExhausted, only: isSingle},
		{name: "krishna-kudari, fixed window", kind: peer, everyday: true, limits: true, make: kudariFixed},
		{name: "krishna-kudari, GCRA", kind: peer, everyday: true, limits: true, make: kudariGCRA, only: kudariGCRAFits},
		{name: "fiber limiter", kind: peer, everyday: true, limits: true, make: fiberLimiter},
	}
}

func redisRate(w *setup) (limiter, error) {
	return redisRateLimiter(w, redis_rate.NewLimiter(w.rdb)), nil
}

// redisRatePipelined lets go-redis send the commands of callers that wait at the same time in one pipeline.
func redisRatePipelined(w *setup) (limiter, error) {
	auto, err := w.rdb.AutoPipeline()
	if err != nil {
		return nil, err
	}
	return redisRateLimiter(w, redis_rate.NewLimiter(auto)), nil
}

func redisRateLimiter(w *setup, lim *redis_rate.Limiter) limiter {
	limit := redis_rate.Limit{Rate: int(w.limit.count), Burst: int(w.limit.count), Period: w.limit.period}
	return shared(func(ctx context.Context, key string) (bool, error) {
		res, err := lim.Allow(ctx, key, limit)
		return err == nil && res.Allowed > 0, err
	})
}

func ululeLimiter(w *setup) (limiter, error) {
	store, err := ululeredis.NewStore(w.rdb)
	if err != nil {
		return nil, err
	}
	lim := ulule.New(store, ulule.Rate{Limit: w.limit.count, Period: w.limit.period})
	return shared(func(ctx context.Context, key string) (bool, error) {
		res, err := lim.Get(ctx, key)
		return !res.Reached, err
	}), nil
}

func throttledGCRA(w *setup) (limiter, error) {
	store, err := goredisstore.NewCtx(w.rdb, "throttled:")
	if err != nil {
		return nil, err
	}
	lim, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{
		MaxRate: throttled.PerDuration(int(w.limit.count), w.limit.period), MaxBurst: int(w.limit.count) - 1,
	})
	if err != nil {
		return nil, err
	}
	return shared(func(ctx context.Context, key string) (bool, error) {
		limited, _, err := lim.RateLimitCtx(ctx, key, 1)
		return !limited, err
	}), nil
}

// gaveUp reports whether throttled gave up after ten attempts, because other callers changed the key each time.
func gaveUp(err error) bool {
	return strings.Contains(err.Error(), "Failed to store updated rate limit data")
}

// kudariFixed uses the limiter that the library's New returns.
func kudariFixed(w *setup) (limiter, error) {
	lim, err := kudari.NewFixedWindow(w.limit.count, int64(w.limit.period/time.Second),
		kudari.WithRedis(w.rdb), kudari.WithFailOpen(false))
	return kudariLimiter(lim, err)
}

// kudariGCRA uses the algorithm that the library recommends. It accepts only whole units per second.
func kudariGCRA(w *setup) (limiter, error) {
	second := max(1, w.limit.count/int64(w.limit.period/time.Second))
	lim, err := kudari.NewGCRA(second, w.limit.count, kudari.WithRedis(w.rdb), kudari.WithFailOpen(false))
	return kudariLimiter(lim, err)
}

// kudariGCRAFits reports whether kudariGCRA can take part in a cell. Its slowest rate is one unit per second,
// so in a cell of denials with 10,000 keys, many keys would always be admitted again.
func kudariGCRAFits(c cell) bool { return c.scenario == admitted || c.keys == 1 }

func kudariLimiter(lim kudari.Limiter, err error) (limiter, error) {
	return shared(func(ctx context.Context, key string) (bool, error) {
		res, err := lim.Allow(ctx, key)
		return res.Allowed, err
	}), err
}
