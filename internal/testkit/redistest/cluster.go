package redistest

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/redisclient"
)

const (
	masters      = 3
	clusterLimit = 30 * time.Second // how long running servers may take to form a Cluster
)

// Cluster starts a Redis Cluster of three masters without replicas, and returns their addresses once each of them can serve
// or redirect any key. This takes some seconds, so the tests of a package should share a Cluster. It ends with the test.
func Cluster(tb testing.TB) []string {
	tb.Helper()
	return addresses(cluster(tb, 0))
}

// ClusterClient returns a client of the Cluster at addrs, as package redisclient makes it.
func ClusterClient(tb testing.TB, addrs []string) *redis.ClusterClient {
	tb.Helper()
	return redisclient.NewCluster(tb, &redis.ClusterOptions{Addrs: addrs})
}

// cluster starts servers and forms a Cluster, whose masters are the first three servers.
func cluster(tb testing.TB, replicas int, config ...string) []*Instance {
	tb.Helper()
	server, cli := serverBinary(tb), binary(tb, "redis-cli")
	for n := 1; ; n++ {
		nodes := make([]*Instance, masters*(1+replicas))
		for i := range nodes {
			nodes[i] = serve(tb, server, freePort, append([]string{"--cluster-enabled", "yes"}, config...)...)
		}
		addrs := addresses(nodes)
		err := join(tb.Context(), cli, addrs, replicas)
		if err == nil {
			return nodes
		}
		for _, node := range nodes {
			node.Stop()
		}
		if n == attempts || tb.Context().Err() != nil {
			tb.Fatalf("redistest: no cluster of %v: %v", addrs, err)
		}
		tb.Logf("redistest: no cluster of %v, trying again with others: %v", addrs, err)
	}
}

func addresses(instances []*Instance) []string {
	addrs := make([]string, len(instances))
	for i, instance := range instances {
		addrs[i] = instance.Addr
	}
	return addrs
}

// join forms one Cluster of empty servers, and returns when all of them agree that it works.
func join(ctx context.Context, cli string, addrs []string, replicas int) error {
	ctx, cancel := context.WithTimeout(ctx, clusterLimit)
	defer cancel()
	args := append([]string{"--cluster", "create"}, addrs...)
	args = append(args, "--cluster-replicas", strconv.Itoa(replicas), "--cluster-yes")
	out, err := exec.CommandContext(ctx, cli, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("redis-cli --cluster create: %w; its output:\n%s", err, out)
	}
	// redis-cli ends when the nodes know each other. Each of them may still refuse commands for a moment.
	for _, addr := range addrs {
		if err := check.Until(ctx, func() bool { return serving(addr, len(addrs), replicas) }); err != nil {
			return fmt.Errorf("%s is not ready: %w; its state:\n%s", addr, err, query(addr, "CLUSTER INFO\r\nCLUSTER NODES\r\nINFO replication"))
		}
	}
	return nil
}

// serving reports whether the node at addr sees a working Cluster, and every replica follows its master.
func serving(addr string, nodes, replicas int) bool {
	state := query(addr, "CLUSTER INFO\r\nCLUSTER NODES\r\nINFO replication")
	for _, want := range []string{"cluster_state:ok", "cluster_slots_ok:16384", fmt.Sprintf("cluster_known_nodes:%d", nodes)} {
		if !strings.Contains(state, want+"\r\n") {
			return false
		}
	}
	return strings.Count(state, "slave ") == nodes-masters && replicating(state, replicas)
}

// BeginMove begins to move a hash slot between two masters of a Cluster, without its keys. MoveKey moves one key, and
// EndMove declares that all keys have moved.
func BeginMove(tb testing.TB, slot int64, from, to *redis.Client) {
	tb.Helper()
	do(tb, to, "cluster", "setslot", slot, "importing", id(tb, from))
	do(tb, from, "cluster", "setslot", slot, "migrating", id(tb, to))
}

// MoveKey moves one key of a slot that is being moved.
func MoveKey(tb testing.TB, from, to *redis.Client, key string) {
	tb.Helper()
	host, port, _ := strings.Cut(to.Options().Addr, ":")
	do(tb, from, "migrate", host, port, key, 0, 5000)
}

// EndMove ends the move of a slot.
func EndMove(tb testing.TB, slot int64, from, to *redis.Client) {
	tb.Helper()
	do(tb, to, "cluster", "setslot", slot, "node", id(tb, to))
	do(tb, from, "cluster", "setslot", slot, "node", id(tb, to))
}

func id(tb testing.TB, node *redis.Client) any {
	tb.Helper()
	return do(tb, node, "cluster", "myid")
}

func do(tb testing.TB, node *redis.Client, args ...any) any {
	tb.Helper()
	reply, err := node.Do(tb.Context(), args...).Result()
	if err != nil {
		tb.Fatalf("redistest: %v: %v", args, err)
	}
	return reply
}
