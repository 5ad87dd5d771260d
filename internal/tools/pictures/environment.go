package main

import (
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/demo/embedded"
)

// An environment is a Redis server inside this process. Its clock moves only when advance is called.
type environment struct {
	client  core.Client
	advance func(d time.Duration)
	close   func()
}

func open() (*environment, error) {
	m, err := embedded.Start()
	if err != nil {
		return nil, err
	}
	now := time.Unix(1_800_000_000, 0)
	m.SetTime(now)
	client := redis.NewClient(&redis.Options{Addr: m.Addr()})
	return &environment{
		client:  client,
		advance: func(d time.Duration) { now = now.Add(d); m.SetTime(now) },
		close:   func() { _ = client.Close(); m.Close() },
	}, nil
}
