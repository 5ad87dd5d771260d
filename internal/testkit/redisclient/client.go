// Package redisclient makes the clients of Redis that tests use. The machine that runs a test may be so busy that a call
// takes seconds, so a timeout that the test does not set itself is a minute, instead of the few seconds of go-redis: no
// test fails because a client gave up early.
package redisclient

import (
	"io"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// patience is the timeout of whatever a test does not bound itself, or 0 for go-redis's own.
var patience = time.Minute

// UseDefaults leaves all timeouts as go-redis has them, for a package whose tests are about faults: there
// the options that users have decide how long an outage lasts. Its TestMain calls it.
func UseDefaults() { patience = 0 }

// New returns a client with these options, closed when the test of tb ends. It changes the zero timeouts of o.
func New(tb testing.TB, o *redis.Options) *redis.Client {
	tb.Helper()
	wait(&o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.PoolTimeout)
	return closed(tb, redis.NewClient(o))
}

// NewCluster returns a client of a Cluster, as New does.
func NewCluster(tb testing.TB, o *redis.ClusterOptions) *redis.ClusterClient {
	tb.Helper()
	wait(&o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.PoolTimeout)
	return closed(tb, redis.NewClusterClient(o))
}

// NewRing returns a client of several servers that share the keys, as New does.
func NewRing(tb testing.TB, o *redis.RingOptions) *redis.Ring {
	tb.Helper()
	wait(&o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.PoolTimeout)
	return closed(tb, redis.NewRing(o))
}

// NewFailover returns a client of the master that Sentinels name, as New does.
func NewFailover(tb testing.TB, o *redis.FailoverOptions) *redis.Client {
	tb.Helper()
	wait(&o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.PoolTimeout)
	return closed(tb, redis.NewFailoverClient(o))
}

// NewUniversal returns a client of one server or of a Cluster, as New does.
func NewUniversal(tb testing.TB, o *redis.UniversalOptions) redis.UniversalClient {
	tb.Helper()
	wait(&o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.PoolTimeout)
	return closed(tb, redis.NewUniversalClient(o))
}

func wait(timeouts ...*time.Duration) {
	for _, timeout := range timeouts {
		if *timeout == 0 {
			*timeout = patience
		}
	}
}

// closed closes client when the test ends. A test may have closed it before.
func closed[C io.Closer](tb testing.TB, client C) C {
	tb.Helper()
	tb.Cleanup(func() { _ = client.Close() })
	return client
}
