package main

import (
	"context"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
	golimiter "github.com/sethvargo/go-limiter"
	"github.com/sethvargo/go-redisstore"
)

// redisstoreKept has a pool that keeps its connections, as go-redis's does.
func redisstoreKept(w *world) (limiter, error) {
	pool := &redis.Pool{
		MaxIdle: w.callers + 1, IdleTimeout: 5 * time.Minute, DialContext: func(ctx context.Context) (redis.Conn, error) {
			return redis.DialContext(ctx, "tcp", w.addr)
		},
	}
	store, err := redisstore.NewWithPool(redisstoreConfig(w), pool)
	return redisstoreLimiter(store, err)
}

// redisstoreOwn has the pool of the library's New: it keeps no connection, so each
// decision dials; of 100 at once it refuses more.
func redisstoreOwn(w *world) (limiter, error) {
	store, err := redisstore.New(redisstoreConfig(w))
	return redisstoreLimiter(store, err)
}

func poolExhausted(err error) bool { return strings.Contains(err.Error(), "connection pool exhausted") }

// redisstoreConfig has the same count in a day, which no run outlasts: after a
// period v0.3.0 gives back interval/count nanoseconds' worth of units, whatever
// the count, so that of a large one all but a few stay used.
func redisstoreConfig(w *world) *redisstore.Config {
	return &redisstore.Config{
		Tokens: uint64(w.limit.count), Interval: max(w.limit.period, 24*time.Hour),
		Dial: func() (redis.Conn, error) { return redis.Dial("tcp", w.addr) },
	}
}

func redisstoreLimiter(store golimiter.Store, err error) (limiter, error) {
	return takeFrom(store), err
}

// takeFrom decides with a store of go-limiter.
func takeFrom(store golimiter.Store) limiter {
	return shared(func(ctx context.Context, key string) (bool, error) {
		_, _, _, ok, err := store.Take(ctx, key)
		return ok, err
	})
}
