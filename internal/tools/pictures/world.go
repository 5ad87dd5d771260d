package main

import (
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/demo/embedded"
	"github.com/redislimit/redislimit/internal/suite/conformance"
)

// A world is a Redis whose clock stands still unless it is moved.
type world struct {
	client  core.Client
	advance func(d time.Duration)
	close   func()
}

// open returns the world of the Redis at url, or of one in this process.
func open(url string) (*world, error) {
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
	return &world{
		client:  client,
		advance: func(d time.Duration) { now = now.Add(d); m.SetTime(now) },
		close:   func() { _ = client.Close(); m.Close() },
	}, nil
}

func overRedis(client *redis.Client) *world {
	driven := conformance.NewDriven(client)
	return &world{client: driven, advance: driven.Advance, close: func() { _ = client.Close() }}
}
