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

const electLimit = time.Minute // how long a failover, or the return of a server, may take: on a busy machine Sentinel may pause for 30 s

// ReplicatedCluster is a Redis Cluster of three masters with one replica each. When a master stops, its replica takes over.
// When the former master is started again, it becomes the replica of the new one.
type ReplicatedCluster struct {
	// Addrs are the addresses of all nodes, which stay the same.
	Addrs []string
	// Nodes are in the same order. Each failover changes which of them are masters.
	Nodes []*Instance

	ctx context.Context
	tb  testing.TB
}

// ClusterWithReplicas starts a Cluster whose nodes consider a node failed after a second of silence, and returns once each
// replica follows its master. Starting takes some seconds, and a failover two or three. config has further flags for every
// node. By default no slot is served while one has no master; "--cluster-require-full-coverage", "no" changes this. The
// Cluster ends with the test.
func ClusterWithReplicas(tb testing.TB, config ...string) *ReplicatedCluster {
	tb.Helper()
	nodes := cluster(tb, 1, append([]string{"--cluster-node-timeout", "1000", noSyncDelay, "0"}, config...)...)
	return &ReplicatedCluster{Addrs: addresses(nodes), Nodes: nodes, ctx: tb.Context(), tb: tb}
}

// Client returns a client of the Cluster as package redisclient makes it, which is closed when the test of tb ends. On its
// own, go-redis may miss a failover for a minute, as long as no node replies MOVED:
// https://github.com/redis/go-redis/issues/3979.
func (c *ReplicatedCluster) Client(tb testing.TB) *redis.ClusterClient {
	tb.Helper()
	return ClusterClient(tb, c.Addrs)
}

// Owner returns the master that owns the key, according to the nodes that answer. If there is none, because the owner has
// stopped or is paused, Owner waits for the failover.
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

// owner queries all nodes: a master that has come back considers itself the owner until it learns of the newer one, which
// has a higher epoch.
func (c *ReplicatedCluster) owner(key string) *Instance {
	var owner *Instance
	newest := -1
	for _, node := range c.Nodes {
		if node.Pid() == 0 {
			continue
		}
		slot, nodes, _ := strings.Cut(query(node.Addr, "CLUSTER KEYSLOT "+key+"\r\nCLUSTER NODES"), "\r\n")
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

// holds returns a function that reports whether a range ("0-5460", "7") contains the slot (":7").
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

// replicating reports whether a server has this number of replicas, all in sync, or is itself a replica in sync. state is
// the server's reply to INFO replication.
func replicating(state string, replicas int) bool {
	if strings.Contains(state, "role:slave\r\n") {
		return strings.Contains(state, "master_link_status:up\r\n")
	}
	return strings.Count(state, ",state=online,") == replicas
}
