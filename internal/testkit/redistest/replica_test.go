package redistest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/testkit/check"
)

// writesAgain writes until that succeeds.
func writesAgain(t *testing.T, c redis.UniversalClient, key string) {
	t.Helper()
	start := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), electLimit)
	defer cancel()
	var err error
	if check.Until(ctx, func() bool {
		err = c.Incr(ctx, key).Err()
		if cluster, ok := c.(*redis.ClusterClient); ok && err != nil {
			cluster.ReloadState(ctx) // else it asks the old master for up to a minute
		}
		return err == nil
	}) != nil {
		t.Errorf("no write for %v: %v", electLimit, err)
		return
	}
	t.Logf("writes again after %v", time.Since(start))
}

func TestClusterFailover(t *testing.T) {
	t.Parallel()
	start := time.Now()
	cluster := ClusterWithReplicas(t)
	t.Logf("ready after %v", time.Since(start))
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs, ReadTimeout: 300 * time.Millisecond})
	t.Cleanup(func() { _ = c.Close() })
	owners := map[*Instance]bool{}
	for i := range 100 {
		key := fmt.Sprintf("a \"key\"\r\n%d", i)
		if err := c.Set(t.Context(), key, i, 0).Err(); err != nil {
			t.Fatal(err)
		}
		if i > 10 {
			continue
		}
		owner := cluster.Owner(key)
		owners[owner] = true
		if got, err := owner.Client(t).Get(t.Context(), key).Int(); got != i || err != nil {
			t.Errorf("the owner of %q has %d, %v", key, got, err)
		}
		if err := cluster.Replica(key).Client(t).Get(t.Context(), key).Err(); err == nil || !strings.HasPrefix(err.Error(), "MOVED ") {
			t.Errorf("its replica says %v, want MOVED", err)
		}
	}
	if len(owners) != masters {
		t.Errorf("%d owners, want %d", len(owners), masters)
	}

	const key = "n"
	owner, replica := cluster.Owner(key), cluster.Replica(key)
	if err := cluster.Client(t).Get(t.Context(), key).Err(); !errors.Is(err, redis.Nil) {
		t.Errorf("a default client: %v", err)
	}
	for n, stop := range []func(){owner.Stop, replica.Pause} { // there, and back
		if err := c.Incr(t.Context(), key).Err(); err != nil {
			t.Error(err)
		}
		waitReplicated(t, owner, replica)
		stop()
		writesAgain(t, c, key)
		if n == 0 && cluster.Owner(key) != replica {
			t.Errorf("after a failover %s owns the key, want %s", cluster.Owner(key).Addr, replica.Addr)
		}
		if n == 0 {
			owner.Start(t)
		} else {
			owner.Resume()
		}
		cluster.Healed()
		owner, replica = replica, owner
	}
	if cluster.Owner(key) != owner || cluster.Replica(key) != replica {
		t.Errorf("%s owns the key, want %s", cluster.Owner(key).Addr, owner.Addr)
	}
	if got, err := c.Get(t.Context(), key).Int(); got != 4 || err != nil {
		t.Errorf("value %d, %v, want 4", got, err)
	}
}

func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	start := time.Now()
	group := Sentinel(t)
	t.Logf("ready after %v", time.Since(start))
	c := group.Client(t)
	if group.Master() != group.Servers[0] {
		t.Errorf("the master is %s, want %s", group.Master().Addr, group.Servers[0].Addr)
	}
	const key = "n"
	master, other := group.Servers[0], group.Servers[1]
	if err := c.Incr(t.Context(), key).Err(); err != nil {
		t.Error(err)
	}
	waitReplicated(t, master, other)
	master.Stop()
	writesAgain(t, c, key)
	if untilElected(t.Context(), func() bool { return group.Master() == other }) != nil { // a client may learn it first
		t.Errorf("after a failover the master is %s, want %s", group.Master().Addr, other.Addr)
	}
	master.Start(t)
	group.Healed()
	if got, err := c.Get(t.Context(), key).Int(); got != 2 || err != nil {
		t.Errorf("value %d, %v, want 2", got, err)
	}
}

// waitReplicated returns when the replica has what its master had: replication does not wait for it, and what it has not is lost.
func waitReplicated(t *testing.T, master, replica *Instance) {
	t.Helper()
	offset := func(field string, i *Instance) string {
		_, rest, _ := strings.Cut(ask(i.Addr, "INFO replication"), field+":")
		value, _, _ := strings.Cut(rest, "\r\n")
		return value
	}
	want := offset("master_repl_offset", master)
	if untilElected(t.Context(), func() bool { return offset("slave_repl_offset", replica) >= want }) != nil {
		t.Errorf("%s does not follow %s", replica.Addr, master.Addr)
	}
}
