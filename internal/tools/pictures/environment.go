package main

import (
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/demo/embedded"
	"github.com/redislimit/redislimit/internal/suite/conformance"
)

// An environment is a Redis whose clock moves only by advance.
type environment struct {
	client  core.Client
	advance func(d time.Duration)
	close   func()
}

// open connects to the Redis at url, or starts one in this process.
func open(url string) (*environment, error) {
	if url != "" {
		options, err := redis.ParseURL(url)
		if err != nil {
			return nil, err
		}
		return overRedis(redis.NewClient(options)), nil
	}
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

func overRedis(client *redis.Client) *environment {
	driven := conformance.NewDriven(client)
	return &environment{client: driven, advance: driven.Advance, close: func() { _ = client.Close() }}
}
