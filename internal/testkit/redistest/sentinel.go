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
	noSyncDelay = "--repl-diskless-sync-delay" // by default a master waits 5 s for further replicas before it sends the first its data
)

// SentinelGroup is a master and its replica, monitored by three Sentinels. When the master stops, the replica takes over.
// When the former master is started again, it becomes the replica.
type SentinelGroup struct {
	// Name is the master's name among the Sentinels.
	Name string
	// Addrs are the addresses of the Sentinels.
	Addrs []string
	// Sentinels are in the same order.
	Sentinels []*Instance
	// Servers are the master and the replica. At first, the master is the first one.
	Servers []*Instance

	ctx context.Context
	tb  testing.TB
}

// Sentinel starts a master, a replica and three Sentinels, which consider a master failed after half a second of silence
// (two seconds before Redis 7.0). It returns once all of them know each other. A failover takes about two seconds, and a
// former master that returns becomes the replica some seconds later. config has further flags for the two servers. The
// group ends with the test.
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
		downAfter = "2000" // pace has no effect on this version
	}
	watch := fmt.Sprintf("sentinel monitor %s %s %s %d\n", g.Name, host, port, quorum) +
		"sentinel down-after-milliseconds " + g.Name + " " + downAfter + "\n" +
		"sentinel failover-timeout " + g.Name + " 3000\n" // a failed attempt is repeated after twice this time
	for range sentinels {
		s := launch(tb, path, freePort, func(dir string, port int) []string {
			name := filepath.Join(dir, "sentinel.conf") // a file, because Sentinel also stores its state in it
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
		// For four of these periods a Sentinel does not act on the role that a server reports. With shorter periods, a Sentinel
		// could turn a new master back into the replica of the former master, which has returned empty.
		pace(s, 1000, 1000)
	}
	return g
}

// pace sets how often, in milliseconds, a Sentinel announces itself to the others and queries servers for their replicas.
// It also makes the Sentinel ping servers ten times a second, which is how soon it connects to a server again: with the
// default of once a second, it would consider each new master silent after half a second. Before Redis 7.0 the command is
// unknown, and the defaults stay.
func pace(s *Instance, publish, info int) {
	query(s.Addr, fmt.Sprintf("SENTINEL DEBUG PING-PERIOD 100 PUBLISH-PERIOD %d INFO-PERIOD %d", publish, info))
}

// Client returns a client of the present master, as package redisclient makes it.
func (g *SentinelGroup) Client(tb testing.TB) *redis.Client {
	tb.Helper()
	return redisclient.NewFailover(tb, &redis.FailoverOptions{MasterName: g.Name, SentinelAddrs: g.Addrs})
}

// Master returns the server that most Sentinels consider the master, whether it runs or not. Until they have agreed on
// another, this is the master that stopped. For a moment it may still be the old one when the first Sentinel already sends
// clients to the new one.
func (g *SentinelGroup) Master() *Instance {
	g.tb.Helper()
	var master *Instance
	err := untilElected(g.ctx, func() bool { // a Sentinel that does not answer in time has no vote
		master = g.master()
		return master != nil
	})
	if err != nil {
		g.tb.Fatalf("redistest: the Sentinels do not agree: %v: %q", err, g.states())
	}
	return master
}

// master returns the server that most Sentinels report as the master, or nil if there is none.
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

// Healed waits until both servers run, one as a replica in sync of the other, and all Sentinels see this.
func (g *SentinelGroup) Healed() {
	g.tb.Helper()
	err := untilElected(g.ctx, func() bool {
		master, replica := query(g.Servers[0].Addr, "INFO replication"), query(g.Servers[1].Addr, "INFO replication")
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

// states returns the state of the master as each running Sentinel reports it.
func (g *SentinelGroup) states() []string {
	var states []string
	for _, s := range g.Sentinels {
		if s.Pid() != 0 {
			states = append(states, query(s.Addr, "INFO sentinel"))
		}
	}
	return states
}
