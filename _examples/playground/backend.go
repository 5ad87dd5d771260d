package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/demo/embedded"
)

// A backend is the Redis of one session: the session has clients of its own, and a link of its own.
type backend struct {
	client   redis.UniversalClient
	others   [members]redis.UniversalClient // one client for each process
	link     *link
	embedded *miniredis.Miniredis      // nil if Redis runs elsewhere
	timeout  time.Duration             // of each decision
	stands   atomic.Pointer[time.Time] // the time at which the clock stands; the zero time if it runs
}

// connect makes clients like shared. If shared is nil, it starts an embedded Redis.
func connect(shared redis.UniversalClient, timeout time.Duration) (*backend, error) {
	b := &backend{link: newLink(), timeout: timeout}
	if shared == nil {
		server, err := embedded.Start()
		if err != nil {
			return nil, err
		}
		b.embedded = server
		embedded := redis.NewClient(&redis.Options{Addr: server.Addr()})
		defer func() { _ = embedded.Close() }()
		shared = embedded
	}
	var err error
	if b.client, err = b.like(shared); err != nil {
		return nil, err
	}
	for i := range b.others {
		b.others[i], _ = b.like(shared) // succeeds, because it did for the same argument
	}
	return b, nil
}

// like makes a client like shared, whose connections use the link.
func (b *backend) like(shared redis.UniversalClient) (redis.UniversalClient, error) {
	switch shared := shared.(type) {
	case *redis.Client:
		return b.single(shared.Options()), nil
	case *redis.ClusterClient:
		options := *shared.Options()
		if options.Dialer == nil {
			options.Dialer = redis.NewDialer(&redis.Options{DialTimeout: options.DialTimeout, TLSConfig: options.TLSConfig})
		}
		options.Dialer = b.link.through(options.Dialer)
		options.ContextTimeoutEnabled = true
		return redis.NewClusterClient(&options), nil
	}
	return nil, fmt.Errorf("a client of type %T cannot be stopped", shared)
}

// single makes a client of one server. It does not repeat failed commands, so that the page
// shows at once that Redis has stopped.
func (b *backend) single(like *redis.Options) *redis.Client {
	options := *like
	if options.Dialer == nil {
		options.Dialer = redis.NewDialer(&options)
	}
	options.Dialer = b.link.through(options.Dialer)
	options.DialerRetries, options.MaxRetries = 1, -1
	options.PushNotificationProcessor = nil // it belongs to the other client
	options.ContextTimeoutEnabled, options.ReadTimeout, options.WriteTimeout = true, 2*b.timeout, 2*b.timeout
	return redis.NewClient(&options)
}

// close closes the clients, and stops the embedded Redis.
func (b *backend) close() {
	_ = b.client.Close() // its connections end with it
	for _, client := range b.others {
		_ = client.Close()
	}
	if b.embedded != nil {
		b.embedded.Close()
	}
}

// setTime stops the clock of the embedded Redis, and of now, at t. The zero time lets the clocks
// run. Keys do not expire while the clock stands still; no decision depends on that.
func (b *backend) setTime(t time.Time) {
	b.stands.Store(&t)
	b.embedded.ClockTTL(false) // otherwise the clock would seem to jump
	b.embedded.SetTime(t)
	b.embedded.ClockTTL(t.IsZero())
}

// now returns the time for limiters in memory.
func (b *backend) now() time.Time {
	if t := b.stands.Load(); t != nil && !t.IsZero() {
		return *t
	}
	return time.Now()
}

// clock returns a function that estimates the time of Redis's clock from one call. The windows follow that clock.
func (b *backend) clock(ctx context.Context) (func() time.Time, error) {
	sent := time.Now()
	at, err := b.client.Time(ctx).Result()
	if err != nil {
		return nil, err
	}
	now := time.Now()
	ahead := at.Sub(sent.Add(now.Sub(sent) / 2))
	return func() time.Time { return time.Now().Add(ahead) }, nil
}
