// Package redisclient makes the Redis clients of tests. The machine that runs a test may be so busy that a call takes
// seconds. So a timeout that the test does not set is a minute, instead of the few seconds of go-redis: no test fails
// because a client gave up early.
package redisclient

import (
	"io"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// patience is each timeout that a test does not set, or 0 for go-redis's own.
var patience = time.Minute

// UseDefaults makes the clients of a package use go-redis's own timeouts. It is for tests about faults, where the options
// that users have determine how long an outage lasts. The package's TestMain calls it.
func UseDefaults() { patience = 0 }

// New returns a client with these options, which is closed when the test of tb ends. It changes timeouts of o that are
// zero.
func New(tb testing.TB, o *redis.Options) *redis.Client {
	tb.Helper()
	wait(&o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.PoolTimeout)
	return closed(tb, redis.NewClient(o))
}

// NewCluster is like New, for a client of a Cluster.
func NewCluster(tb testing.TB, o *redis.ClusterOptions) *redis.ClusterClient {
	tb.Helper()
	wait(&o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.PoolTimeout)
	return closed(tb, redis.NewClusterClient(o))
}

// NewRing is like New, for a client that distributes the keys over several servers.
func NewRing(tb testing.TB, o *redis.RingOptions) *redis.Ring {
	tb.Helper()
	wait(&o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.PoolTimeout)
	return closed(tb, redis.NewRing(o))
}

// NewFailover is like New, for a client of the master that Sentinels report.
func NewFailover(tb testing.TB, o *redis.FailoverOptions) *redis.Client {
	tb.Helper()
	wait(&o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.PoolTimeout)
	return closed(tb, redis.NewFailoverClient(o))
}

// NewUniversal is like New, for a client of one server or of a Cluster.
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

// closed closes client when the test ends. The test may have closed it before.
func closed[C io.Closer](tb testing.TB, client C) C {
	tb.Helper()
	tb.Cleanup(func() { _ = client.Close() })
	return client
}
