package redistest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/testkit/redisclient"
)

const (
	sentinels   = 3
	quorum      = 2
	noSyncDelay = "--repl-diskless-sync-delay" // by default a replica that comes waits 5 s for others to come
)

// SentinelGroup is a master and its replica, watched by three Sentinels. When the master stops the replica takes its
// place; started again, the former master becomes the replica.
type SentinelGroup struct {
	// Name is the master's name among the Sentinels.
	Name string
	// Addrs are the addresses of the Sentinels.
	Addrs []string
	// Sentinels stand in the same order.
	Sentinels []*Instance
	// Servers are those that are master or replica. At first the first one is the master.
	Servers []*Instance

	ctx context.Context
	tb  testing.TB
}

// Sentinel starts a master, a replica and three Sentinels, which give up a silent master after half a second (two
// seconds before Redis 7.0). It returns once all of them know each other; a failover takes about two seconds, and a former master that returns is made the
// replica after some more. config holds further flags for the two servers. It ends with the test.
func Sentinel(tb testing.TB, config ...string) *SentinelGroup {
	tb.Helper()
	path := serverBinary(tb)
	g := &SentinelGroup{Name: "main", ctx: tb.Context(), tb: tb}
	config = append([]string{noSyncDelay, "0"}, config...)
	master := serve(tb, path, freePort, config...)
	host, port, _ := strings.Cut(master.Addr, ":")
	g.Servers = []*Instance{master, serve(tb, path, freePort, append(config, "--replicaof", host, port)...)}
	downAfter := "500"
	if majorVersion(tb, path) < 7 {
		downAfter = "2000" // pace has no effect there: see it
	}
	watch := fmt.Sprintf("sentinel monitor %s %s %s %d\n", g.Name, host, port, quorum) +
		"sentinel down-after-milliseconds " + g.Name + " " + downAfter + "\n" +
		"sentinel failover-timeout " + g.Name + " 3000\n" // an attempt that failed is repeated after twice that
	for range sentinels {
		s := launch(tb, path, freePort, func(dir string, port int) []string {
			name := filepath.Join(dir, "sentinel.conf") // its memory, too: it must be a file
			if err := os.WriteFile(name, []byte(watch), 0o600); err != nil {
				tb.Fatalf("redistest: %v", err)
			}
			return append(append([]string{name}, flags(dir, port)...), "--sentinel")
		})
		pace(s, 200, 200)
		g.Sentinels = append(g.Sentinels, s)
	}
	g.Addrs = addresses(g.Sentinels)
	g.Healed()
	for _, s := range g.Sentinels {
		// For four of these periods a Sentinel does not act on what a server says of its own role. A hasty one turns a new
		// master back into the replica of the former one that has returned, empty.
		pace(s, 1000, 1000)
	}
	return g
}

// pace sets how often, in milliseconds, a Sentinel makes itself known to the others and asks servers for their replicas. A server
// it pings ten times a second: that is also how soon it connects to one again, and a second of that, the default, would
// make it take each new master for a silent one after half a second. Before Redis 7.0 this is an unknown command, and the
// defaults stay.
func pace(s *Instance, publish, info int) {
	ask(s.Addr, fmt.Sprintf("SENTINEL DEBUG PING-PERIOD 100 PUBLISH-PERIOD %d INFO-PERIOD %d", publish, info))
}

// Client returns a client of the master, whichever that is, as package redisclient makes it.
func (g *SentinelGroup) Client(tb testing.TB) *redis.Client {
	tb.Helper()
	return redisclient.NewFailover(tb, &redis.FailoverOptions{MasterName: g.Name, SentinelAddrs: g.Addrs})
}

// Master returns the server that is the master in the eyes of most Sentinels, running or not: until they have agreed on
// another it is the one that stopped, and for a moment still when the first of them sends clients to the new one.
func (g *SentinelGroup) Master() *Instance {
	g.tb.Helper()
	var master *Instance
	err := untilElected(g.ctx, func() bool { // one that is slow to answer has no vote
		master = g.master()
		return master != nil
	})
	if err != nil {
		g.tb.Fatalf("redistest: the Sentinels do not agree: %v: %q", err, g.states())
	}
	return master
}

// master returns the server that most Sentinels say is the master, nil if there is none.
func (g *SentinelGroup) master() *Instance {
	states := g.states()
	for _, s := range g.Servers {
		votes := 0
		for _, state := range states {
			if strings.Contains(state, ",address="+s.Addr+",") {
				votes++
			}
		}
		if votes >= quorum {
			return s
		}
	}
	return nil
}

// Healed waits until both servers run, one as the replica of the other and in step, and all Sentinels see it so.
func (g *SentinelGroup) Healed() {
	g.tb.Helper()
	err := untilElected(g.ctx, func() bool {
		master, replica := ask(g.Servers[0].Addr, "INFO replication"), ask(g.Servers[1].Addr, "INFO replication")
		at := g.Servers[0].Addr
		if strings.Contains(master, "role:slave") {
			master, replica, at = replica, master, g.Servers[1].Addr
		}
		if !strings.Contains(master, "role:master") || !strings.Contains(replica, "role:slave") || !replicating(master, 1) || !replicating(replica, 1) {
			return false
		}
		for _, state := range g.states() {
			if !strings.Contains(state, fmt.Sprintf("status=ok,address=%s,slaves=1,sentinels=%d", at, sentinels)) {
				return false
			}
		}
		return true
	})
	if err != nil {
		g.tb.Fatalf("redistest: %v; the Sentinels say %q", err, g.states())
	}
}

// states returns what each running Sentinel thinks of the master.
func (g *SentinelGroup) states() []string {
	var states []string
	for _, s := range g.Sentinels {
		if s.Pid() != 0 {
			states = append(states, ask(s.Addr, "INFO sentinel"))
		}
	}
	return states
}
