package main

import (
	"context"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
	golimiter "github.com/sethvargo/go-limiter"
	"github.com/sethvargo/go-redisstore"
)

// redisstoreKept uses a pool that keeps its connections, as go-redis's does.
func redisstoreKept(w *setup) (limiter, error) {
	pool := &redis.Pool{
		MaxIdle: w.callers + 1, IdleTimeout: 5 * time.Minute, DialContext: func(ctx context.Context) (redis.Conn, error) {
			return redis.DialContext(ctx, "tcp", w.addrs[0])
		},
	}
	store, err := redisstore.NewWithPool(redisstoreConfig(w), pool)
	return redisstoreLimiter(store, err)
}

// redisstoreOwn uses the pool of the library's New. It keeps no connection, so each
// decision dials, and it refuses more than 100 at once.
func redisstoreOwn(w *setup) (limiter, error) {
	store, err := redisstore.New(redisstoreConfig(w))
	return redisstoreLimiter(store, err)
}

func poolExhausted(err error) bool { return strings.Contains(err.Error(), "connection pool exhausted") }

// redisstoreConfig has the same count per day, because no run lasts longer than that.
// After a period, v0.3.0 gives back interval/count units (in nanoseconds), which is
// only a few of a large count.
func redisstoreConfig(w *setup) *redisstore.Config {
	return &redisstore.Config{
		Tokens: uint64(w.limit.count), Interval: max(w.limit.period, 24*time.Hour),
		Dial: func() (redis.Conn, error) { return redis.Dial("tcp", w.addrs[0]) },
	}
}

func redisstoreLimiter(store golimiter.Store, err error) (limiter, error) {
	return takeFrom(store), err
}

// takeFrom makes decisions with a store of go-limiter.
func takeFrom(store golimiter.Store) limiter {
	return shared(func(ctx context.Context, key string) (bool, error) {
		_, _, _, ok, err := store.Take(ctx, key)
		return ok, err
	})
}
