package redistest

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	masters      = 3
	clusterLimit = 30 * time.Second // to make a cluster of running servers
)

// Cluster starts a Redis Cluster of three masters without replicas, and returns their addresses once each of them can
// serve or redirect any key. It takes some seconds, so a package should share one. It ends with the test.
func Cluster(tb testing.TB) []string {
	tb.Helper()
	server, cli := binary(tb, "redis-server"), binary(tb, "redis-cli")
	for n := 1; ; n++ {
		nodes := make([]*Instance, masters)
		addrs := make([]string, masters)
		for i := range nodes {
			nodes[i] = serve(tb, server, freePort, "--cluster-enabled", "yes")
			addrs[i] = nodes[i].Addr
		}
		err := join(tb.Context(), cli, addrs)
		if err == nil {
			return addrs
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

// ClusterClient returns a client of the cluster at addrs with go-redis's default options, closed when the test of tb ends.
func ClusterClient(tb testing.TB, addrs []string) *redis.ClusterClient {
	tb.Helper()
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	tb.Cleanup(func() { _ = c.Close() }) // before the servers stop: the last cleanup registered is the first to run
	return c
}

// join makes one cluster of empty servers and returns when all of them agree that it works.
func join(ctx context.Context, cli string, addrs []string) error {
	ctx, cancel := context.WithTimeout(ctx, clusterLimit)
	defer cancel()
	args := append([]string{"--cluster", "create"}, addrs...)
	out, err := exec.CommandContext(ctx, cli, append(args, "--cluster-replicas", "0", "--cluster-yes")...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("redis-cli --cluster create: %w; it says:\n%s", err, out)
	}
	// redis-cli ends when the nodes know each other, while each of them still refuses commands for a moment.
	for _, addr := range addrs {
		for !serving(addr) {
			select {
			case <-ctx.Done():
				return fmt.Errorf("%s is not ready: %w; CLUSTER INFO says:\n%s", addr, ctx.Err(), ask(addr, "CLUSTER INFO"))
			case <-time.After(pollEvery):
			}
		}
	}
	return nil
}

func serving(addr string) bool {
	info := ask(addr, "CLUSTER INFO")
	for _, want := range []string{"cluster_state:ok", "cluster_slots_ok:16384", fmt.Sprintf("cluster_known_nodes:%d", masters)} {
		if !strings.Contains(info, want+"\r\n") {
			return false
		}
	}
	return true
}
