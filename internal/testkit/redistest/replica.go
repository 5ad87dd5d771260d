package redistest

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const electLimit = time.Minute // for a failover, or the return of a server: on a busy machine Sentinel may pause for 30 s

// ReplicatedCluster is a Redis Cluster of three masters with one replica each. A master that stops is replaced by its
// replica; started again, it becomes the replica of that one.
type ReplicatedCluster struct {
	// Addrs are the addresses of all nodes, which stay the same.
	Addrs []string
	// Nodes stand in the same order. Which of them are masters changes with each failover.
	Nodes []*Instance

	ctx context.Context
	tb  testing.TB
}

// ClusterWithReplicas starts a cluster whose nodes give up a silent one after a second, and returns once each replica
// follows its master. It takes some seconds, a failover two or three. config holds further flags for every node; one
// of Redis's defaults that shows during a failover is that no slot is served while one has no master
// ("--cluster-require-full-coverage", "no" to change it). It ends with the test.
func ClusterWithReplicas(tb testing.TB, config ...string) *ReplicatedCluster {
	tb.Helper()
	nodes := cluster(tb, 1, append([]string{"--cluster-node-timeout", "1000", noSyncDelay, "0"}, config...)...)
	return &ReplicatedCluster{Addrs: addresses(nodes), Nodes: nodes, ctx: tb.Context(), tb: tb}
}

// Client returns a client of the cluster with go-redis's default options, closed when the test of tb ends. By itself that
// one may miss a failover for a minute, as long as nothing answers it MOVED: https://github.com/redis/go-redis/issues/3979.
func (c *ReplicatedCluster) Client(tb testing.TB) *redis.ClusterClient {
	tb.Helper()
	return ClusterClient(tb, c.Addrs)
}

// Owner returns the master that owns the key, by what the nodes that answer say of themselves. While there is none, as the
// owner has stopped or is paused, it waits for the failover.
func (c *ReplicatedCluster) Owner(key string) *Instance {
	c.tb.Helper()
	var owner *Instance
	if err := untilElected(c.ctx, func() bool {
		owner = c.owner(key)
		return owner != nil
	}); err != nil {
		c.tb.Fatalf("redistest: no node of %v owns %q: %v", c.Addrs, key, err)
	}
	return owner
}

// owner asks all nodes: a master that came back believes in itself until it hears of the newer one, with a higher epoch.
func (c *ReplicatedCluster) owner(key string) *Instance {
	var owner *Instance
	newest := -1
	for _, node := range c.Nodes {
		if node.Pid() == 0 {
			continue
		}
		slot, nodes, _ := strings.Cut(ask(node.Addr, "CLUSTER KEYSLOT "+key+"\r\nCLUSTER NODES"), "\r\n")
		for line := range strings.Lines(nodes) {
			// id address flags master ping pong epoch link slot...
			f := strings.Fields(line)
			if len(f) < 9 || !strings.HasPrefix(f[2], "myself,master") || !slices.ContainsFunc(f[8:], holds(slot)) {
				continue
			}
			if epoch, err := strconv.Atoi(f[6]); err == nil && epoch > newest {
				owner, newest = node, epoch
			}
		}
	}
	return owner
}

// holds returns whether a range ("0-5460", "7") has the slot (":7").
func holds(slot string) func(string) bool {
	n, err := strconv.Atoi(strings.TrimPrefix(slot, ":"))
	return func(r string) bool {
		from, to, many := strings.Cut(r, "-")
		if !many {
			to = from
		}
		low, err1 := strconv.Atoi(from)
		high, err2 := strconv.Atoi(to)
		return err == nil && err1 == nil && err2 == nil && low <= n && n <= high
	}
}

// replicating reports whether a server has as many replicas as it should have, all in step, or is one in step. state holds its
// INFO replication.
func replicating(state string, replicas int) bool {
	if strings.Contains(state, "role:slave\r\n") {
		return strings.Contains(state, "master_link_status:up\r\n")
	}
	return strings.Count(state, ",state=online,") == replicas
}
