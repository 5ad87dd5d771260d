// Package otherstores_test runs the suite conformance on a Cluster and on miniredis. It is a package of its own because on
// a busy machine all stores together take nearly as long as go test allows for a package.
package otherstores_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/coreaccess"
	"github.com/redislimit/redislimit/internal/inside"
	"github.com/redislimit/redislimit/internal/suite/conformance"
	"github.com/redislimit/redislimit/internal/testkit/mini"
	"github.com/redislimit/redislimit/internal/testkit/redisclient"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

func TestMiniredis(t *testing.T) {
	conformance.All(t, conformance.Runs(t)/4+1, func(t *testing.T, run func(*testing.T, conformance.Store)) {
		addr, now, advance := mini.Driven(t)
		client := redisclient.New(t, &redis.Options{Addr: addr})
		defer func() { _ = client.Close() }()
		run(t, conformance.Store{
			New: func(name string, opts ...core.Option) (*core.Limiter, error) {
				return core.New(client, name, append(append(conformance.OnlyRedis, inside.Core.Simulate(coreaccess.Simulation{Wall: now})), opts...)...)
			},
			Advance:        advance,
			ForgetsByClock: true,
			Redis:          client,
		})
	})
}

func TestCluster(t *testing.T) {
	t.Parallel()
	client := redistest.ClusterClient(t, redistest.Cluster(t))
	conformance.All(t, conformance.Runs(t)/4+1, func(t *testing.T, run func(*testing.T, conformance.Store)) {
		run(t, conformance.OnRedis(t, client))
	})
}
