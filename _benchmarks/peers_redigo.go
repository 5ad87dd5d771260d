package main

import (
	"context"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
	golimiter "github.com/sethvargo/go-limiter"
	"github.com/sethvargo/go-redisstore"
)

// redisstoreKept uses a pool that keeps its connections open, as go-redis's pool does.
func redisstoreKept(w *setup) (limiter, error) {
	pool := &redis.Pool{
		MaxIdle: w.callers + 1, IdleTimeout: 5 * time.Minute, DialContext: func(ctx context.Context) (redis.Conn, error) {
			return redis.DialContext(ctx, "tcp", w.addrs[0])
		},
	}
	store, err := redisstore.NewWithPool(redisstoreConfig(w), pool)
	return redisstoreLimiter(store, err)
}

// redisstoreOwn uses the pool that the library's New makes. The pool keeps no idle connection, so each decision
// opens one, and it refuses more than 100 connections at once.
func redisstoreOwn(w *setup) (limiter, error) {
	store, err := redisstore.New(redisstoreConfig(w))
	return redisstoreLimiter(store, err)
}

func poolExhausted(err error) bool { return strings.Contains(err.Error(), "connection pool exhausted") }

// redisstoreConfig allows the same count per day, because no run takes a day. At the end of a period, v0.3.0
// gives back only interval/count units, with the interval in nanoseconds, which is little of a large count.
func redisstoreConfig(w *setup) *redisstore.Config {
	return &redisstore.Config{
		Tokens: uint64(w.limit.count), Interval: max(w.limit.period, 24*time.Hour),
		Dial: func() (redis.Conn, error) { return redis.Dial("tcp", w.addrs[0]) },
	}
}

func redisstoreLimiter(store golimiter.Store, err error) (limiter, error) {
	return takeFrom(store), err
}

// takeFrom makes decisions with a go-limiter store.
func takeFrom(store golimiter.Store) limiter {
	return shared(func(ctx context.Context, key string) (bool, error) {
		_, _, _, ok, err := store.Take(ctx, key)
		return ok, err
	})
}
