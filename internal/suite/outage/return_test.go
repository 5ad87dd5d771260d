package outage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

// The tests of this file check how soon Redis decides again after an outage, and how few calls fail until then.

// many returns a limit that is never reached.
func many() core.Option { return core.FixedWindow(core.PerHour(1e9)) }

// byRedis makes a decision, and reports whether Redis made it.
func byRedis(tb testing.TB, l *core.Limiter) bool {
	tb.Helper()
	res, err := l.Allow(tb.Context(), "k")
	return err == nil && res.Source == core.SourceRedis
}

// TestServerReturns checks that Redis decides within 200 ms of its return as long as calls are made, whatever made it
// unavailable.
func TestServerReturns(t *testing.T) {
	const timeout, lasts = 500 * time.Millisecond, 4 * time.Second // TestServerIsBack (internal/redisstore) tests longer outages, by a driven clock
	ways := []fault{
		killed(),
		{name: "paused", on: func(_ testing.TB, e *env) { e.server.Pause() }, off: func(_ testing.TB, e *env) { e.server.Resume() }},
		{name: "silence", on: func(_ testing.TB, e *env) { e.proxy.Silence() }, off: pass},
		{name: "blackhole", on: func(_ testing.TB, e *env) { e.proxy.Blackhole() }, off: pass},
	}
	check.IdleRounds(t, tooBusy, func(t *check.Round) {
		var running sync.WaitGroup
		for _, way := range ways {
			for _, contextTimeout := range []bool{false, true} {
				running.Go(func() {
					returns(t.Part(fmt.Sprint(way.name, ", ", clientName(contextTimeout))), way, contextTimeout, lasts, timeout)
				})
			}
		}
		running.Wait()
	})
}

func returns(t *check.Round, way fault, contextTimeout bool, lasts, timeout time.Duration) {
	e := newEnv(t, withContextTimeout(contextTimeout))
	l, watch := watched(e.rdb, "returns", many(), core.FailClosed(), core.Timeout(timeout))
	awaitRedis(t, l, "k")
	way.on(t, e)
	for begun := time.Now(); time.Since(begun) < lasts; time.Sleep(100 * time.Millisecond) {
		if byRedis(t, l) {
			t.Error("a call was decided by Redis, want an error while Redis is away")
		}
	}
	way.off(t, e)
	begun := time.Now()
	for !byRedis(t, l) && time.Since(begun) < check.Patience {
		time.Sleep(10 * time.Millisecond)
	}
	if took := time.Since(begun); took > max(200*time.Millisecond, timeout/5) {
		t.Errorf("Redis decides %v after its return, want at most 200ms", took)
	}
	watch.wantOutages(t, 1)
}

// TestFarConnections checks that a server decides whose round trip fits the Timeout, although a new connection to it takes
// several round trips: soon, and again soon after all connections were cut.
func TestFarConnections(t *testing.T) {
	if testing.Short() {
		t.Skip("18 s of round trips")
	}
	t.Parallel()
	// The longest round trip leaves 50 ms of the Timeout, in which seven goroutines or processes wake up one after the other:
	// two for each direction in the proxy, Redis, the reader of the reply, and the caller.
	const tooLate = 50 * time.Millisecond / 7
	for _, contextTimeout := range []bool{false, true} {
		t.Run(clientName(contextTimeout), func(t *testing.T) {
			t.Parallel()
			// Only one of the two runs has TLS, because more servers at once would keep the machine busy.
			s := setup{tls: !contextTimeout, options: withContextTimeout(contextTimeout).options}
			check.IdleRounds(t, tooLate, func(t *check.Round) { farAway(t, s) })
		})
	}
}

func farAway(t *check.Round, s setup) {
	const timeout = 500 * time.Millisecond
	var running sync.WaitGroup
	for _, share := range []int{50, 70, 90} {
		for _, callers := range []int{1, 8, 64} {
			part := t.Part(fmt.Sprintf("%d %% of the Timeout, %d callers", share, callers))
			running.Go(func() { farConnections(part, timeout*time.Duration(share)/100, timeout, callers, s) })
		}
	}
	running.Wait()
}

func farConnections(t *check.Round, roundTrip, timeout time.Duration, callers int, s setup) {
	const settled, cut, again, end = 6 * time.Second, 9 * time.Second, 15 * time.Second, 18 * time.Second // until settled, connections are being made, and calls do not count
	e := newEnv(t, s)
	e.proxy.Latency(roundTrip / 2)
	l, watch := watched(e.rdb, "far", many(), core.FailClosed(), core.Timeout(timeout))
	var decided, refused [2]atomic.Int64 // before and after the connections are cut
	var running sync.WaitGroup
	begun := time.Now()
	for range callers {
		running.Go(func() {
			for time.Since(begun) < end {
				good, at, phase := byRedis(t, l), time.Since(begun), 0
				if at > cut {
					phase = 1
				}
				switch counts := at > settled && at < cut || at > again; {
				case good && counts:
					decided[phase].Add(1)
				case counts:
					refused[phase].Add(1)
				}
				if !good {
					time.Sleep(20 * time.Millisecond)
				}
			}
		})
	}
	time.Sleep(cut)
	e.do(t, "CLIENT KILL TYPE normal SKIPME yes")
	running.Wait()
	for phase := range decided {
		good, bad := decided[phase].Load(), refused[phase].Load()
		if bad > good/100 || good == 0 {
			t.Errorf("after the connections were cut %d times, Redis made %d decisions and %d calls failed; want at most 1 %% failed", phase, good, bad)
		}
	}
	watch.wantOutages(t, 0)
}

// idle makes n idle connections.
func idle(tb testing.TB, rdb *redis.Client, n int) {
	tb.Helper()
	check.Together(n, func(int) {
		if err := rdb.Do(tb.Context(), "blpop", "none", "0.5").Err(); !errors.Is(err, redis.Nil) {
			tb.Errorf("BLPOP: got error %v, want redis.Nil", err)
		}
	})
	if got := int(rdb.PoolStats().IdleConns); got < n {
		tb.Errorf("the pool has %d idle connections, want %d", got, n)
	}
}

// TestDeadConnections uses idle TLS connections, which look alive when they are dead. However many there are, Redis decides
// within the Timeout of its return. If the server merely closed idle connections, no outage is reported.
func TestDeadConnections(t *testing.T) {
	t.Parallel()
	const dead = 20
	for name, cut := range map[string]func(testing.TB, *env){
		"restarted": func(tb testing.TB, e *env) {
			tb.Helper()
			e.server.Stop()
			e.server.Start(tb)
		},
		"idle for too long": func(tb testing.TB, e *env) {
			tb.Helper()
			e.do(tb, "CONFIG SET timeout 1")
			check.Eventually(tb, "the server closes the idle connections", func() bool {
				list, err := e.admin.ClientList(tb.Context()).Result()
				return err == nil && strings.Count(list, "\n") <= 1 // only the connection of the admin
			})
			e.do(tb, "CONFIG SET timeout 0")
		},
	} {
		for _, tls := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", TLS ", tls), func(t *testing.T) {
				t.Parallel()
				check.Rounds(t, timeouts[1:], func(t *check.Round, timeout time.Duration) {
					e := newEnv(t, setup{tls: tls, options: func(o *redis.Options) { o.PoolSize = 2 * dead }})
					l, watch := watched(e.rdb, "dead", many(), core.FailClosed(), core.Timeout(timeout))
					awaitRedis(t, l, "k")
					idle(t, e.rdb, dead)
					cut(t, e)
					begun, refused := time.Now(), 0
					for !byRedis(t, l) && time.Since(begun) < check.Patience {
						refused++
					}
					took := time.Since(begun)
					t.Logf("%d calls failed, and Redis decided after %v", refused, took)
					if took > timeout || refused > 1 || refused > 0 && !tls {
						t.Errorf("%d calls failed, and Redis decided after %v; want no failed call (with TLS at most 1), and at most %v", refused, took, timeout)
					}
					watch.wantOutages(t, 0)
				})
			})
		}
	}
}

// TestConnectionsCutOnce cuts all connections once, under load: only calls in flight fail.
func TestConnectionsCutOnce(t *testing.T) {
	t.Parallel()
	const callers = 32
	for _, roundTrip := range []time.Duration{0, 20 * time.Millisecond, 100 * time.Millisecond} {
		t.Run(roundTrip.String(), func(t *testing.T) {
			t.Parallel()
			check.Rounds(t, timeouts[2:], func(t *check.Round, timeout time.Duration) {
				e := newEnv(t, setup{})
				e.proxy.Latency(roundTrip / 2)
				l, watch := watched(e.rdb, "cut", many(), core.FailClosed(), core.Timeout(timeout))
				awaitRedis(t, l, "k")
				var refused, decided atomic.Int64
				var running sync.WaitGroup
				end := make(chan struct{})
				for range callers {
					running.Go(func() {
						for {
							select {
							case <-end:
								return
							default:
							}
							if byRedis(t, l) {
								decided.Add(1)
							} else {
								refused.Add(1)
							}
						}
					})
				}
				check.Eventually(t, "Redis decides", func() bool { return decided.Load() > 10*callers })
				refused.Store(0)
				e.do(t, "CLIENT KILL TYPE normal SKIPME yes")
				before := decided.Load()
				check.Eventually(t, "Redis decides again", func() bool { return decided.Load() > before+10*callers })
				time.Sleep(timeout / 4)
				close(end)
				running.Wait()
				t.Logf("with a round trip of %v %d calls failed", roundTrip, refused.Load())
				if n := refused.Load(); n > callers {
					t.Errorf("%d calls failed, want at most the %d in flight", n, callers)
				}
				watch.wantOutages(t, 0)
			})
		})
	}
}

// TestMasterDoesNotReturn kills or pauses a master for good. Its replica decides within 3 s of its promotion. The client
// has go-redis's defaults, with which go-redis alone would not notice the new master for a minute.
func TestMasterDoesNotReturn(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]func(*redistest.Instance){"killed": (*redistest.Instance).Stop, "hung": (*redistest.Instance).Pause} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check.Rounds(t, failoverTimeouts, func(t *check.Round, timeout time.Duration) {
				c := redistest.ClusterWithReplicas(t)
				l, watch := watched(c.Client(t), "promoted", many(), core.FailClosed(), core.Timeout(timeout))
				awaitRedis(t, l, "k")
				old := c.Owner("{k}")
				other := c.Nodes[0]
				if other == old {
					other = c.Nodes[1]
				}
				view := other.Client(t)
				away(old)
				var promoted, decided time.Time
				check.Within(t, failoverLimit, "Redis decides again", func() bool {
					if promoted.IsZero() && ownerOf(t.Context(), view, "{k}") != old.Addr {
						promoted = time.Now()
					}
					if byRedis(t, l) && watch.count(core.EventFallbackOn) > 0 {
						decided = time.Now()
					}
					return !promoted.IsZero() && !decided.IsZero()
				})
				took := decided.Sub(promoted)
				t.Logf("%s: Redis decided %v after the promotion", name, took)
				if took > 3*time.Second {
					t.Errorf("Redis decided %v after the promotion, want at most 3s", took)
				}
				check.Eventually(t, "the end of the outage is reported", func() bool { return watch.count(core.EventFallbackOff) > 0 })
				watch.wantOutages(t, 1)
			})
		})
	}
}

// ownerOf returns the address of the master of key, as a node sees it, or "" if the key has none.
func ownerOf(ctx context.Context, view *redis.Client, key string) string {
	slot := int(view.ClusterKeySlot(ctx, key).Val())
	for _, s := range view.ClusterSlots(ctx).Val() { //nolint:staticcheck // Redis 6 has no other command
		if s.Start <= slot && slot <= s.End {
			return s.Nodes[0].Addr
		}
	}
	return ""
}

// TestCauseIsClear checks that the log says why Redis does not decide, in words that an operator can act on.
func TestCauseIsClear(t *testing.T) {
	t.Parallel()
	type trouble struct {
		setup setup
		on    func(testing.TB, *env)
		want  string
	}
	admin := func(command string) func(testing.TB, *env) {
		return func(tb testing.TB, e *env) {
			tb.Helper()
			for _, c := range append(strings.Split(command, "; "), "CLIENT KILL TYPE normal SKIPME yes") {
				e.do(tb, c)
			}
		}
	}
	for name, c := range map[string]trouble{
		"certificate": {setup{tls: true}, badCertificate().on, "x509: malformed"},
		"no password": {setup{}, admin("ACL SETUSER default resetpass >secret"), "set Options.Password"},
		"no right":    {setup{}, admin("ACL SETUSER default -evalsha -eval"), "'evalsha'"},
		"no write":    {setup{}, admin("ACL SETUSER default -set"), "lacks a right"},
		"no database": {setup{options: func(o *redis.Options) { o.DB = 99 }}, admin("PING"), "see Options.DB"},
		"read-only":   {setup{}, admin("REPLICAOF 127.0.0.1 1"), "connect to the master"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check.Rounds(t, timeouts[1:], func(t *check.Round, timeout time.Duration) {
				e := newEnv(t, c.setup)
				l, watch := watched(e.rdb, "cause", many(), core.Timeout(timeout))
				if name != "no database" {
					awaitRedis(t, l, "k")
				}
				c.on(t, e)
				check.Within(t, 10*time.Second, "a line says "+c.want, func() bool {
					_, _ = l.Allow(t.Context(), "k")
					return slices.ContainsFunc(watch.warnings(), func(line string) bool { return strings.Contains(line, c.want) })
				})
				time.Sleep(500 * time.Millisecond)
				if lines := watch.warnings(); len(lines) > 2 { // the first line may only say that connections have ended
					t.Errorf("%d lines were logged, want at most 2: %q", len(lines), lines)
				}
			})
		})
	}
}

// warnings returns the logged lines.
func (w *watcher) warnings() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(w.texts), func(s string) bool { return strings.HasPrefix(s, "on: ") })
}

// TestRightIsMissing checks that a call for which the Redis user lacks a right fails and notifies observers, but is not an
// outage. Probes leave nothing behind.
func TestRightIsMissing(t *testing.T) {
	t.Parallel()
	const calls = 20
	check.Rounds(t, timeouts[1:], func(t *check.Round, timeout time.Duration) {
		e := newEnv(t, setup{config: []string{"--user", "default", "on", "nopass", "~*", "+@all", "-zrem"}})
		l, watch := watched(e.rdb, "slots", core.InFlight(2*calls), core.FailClosed(), core.Timeout(timeout))
		for range calls {
			r, err := l.Acquire(t.Context(), "k", 1)
			check.Need(t, err)
			if r.Release(t.Context()) == nil {
				t.Error("Release succeeded without the right to run ZREM, want an error")
			}
		}
		if n := watch.count(core.EventOutage); n != calls {
			t.Errorf("events reported %d failed calls, want %d", n, calls)
		}
		if lines := watch.warnings(); len(lines) != 1 || !strings.Contains(lines[0], "lacks a right") || watch.count(core.EventFallbackOn) > 0 {
			t.Errorf("the logged lines are %q, want one that names the missing right, and no outage", lines)
		}
		e.do(t, "DEL rl:slots:{k}:inflight")
		e.do(t, "ACL SETUSER default -pexpireat -pexpire")
		e.proxy.Refuse()
		check.Eventually(t, "Redis is away", func() bool {
			_, _ = l.Acquire(t.Context(), "k", 1)
			return watch.count(core.EventFallbackOn) > 0
		})
		before := e.proxy.Count("EVALSHA")
		e.proxy.Pass()
		check.Eventually(t, "Redis is probed", func() bool { return e.proxy.Count("EVALSHA") > before })
		check.Eventually(t, "the probes have left nothing in Redis", func() bool { return len(e.admin.Keys(t.Context(), "*probe*").Val()) == 0 })
	})
}

// TestNodeOfCluster checks that a client for one server that is connected to a node of a Cluster decides on the keys of
// this node, and that one line says what is wrong.
func TestNodeOfCluster(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Cluster(t)[0]})
	t.Cleanup(func() { _ = rdb.Close() })
	check.Rounds(t, timeouts[1:], func(t *check.Round, timeout time.Duration) {
		l, watch := watched(rdb, "node", many(), core.Timeout(timeout))
		for i := range 100 {
			_, _ = l.Allow(t.Context(), fmt.Sprint("k", i))
		}
		lines := watch.warnings()
		if len(lines) != 1 || !strings.Contains(lines[0], "NewClusterClient") || watch.count(core.EventFallbackOn) > 0 {
			t.Errorf("the logged lines are %q, want one that names NewClusterClient, and no outage", lines)
		}
	})
}

// TestSentinelsMasterIsNamed checks that the lines about a master behind Sentinel contain its address: of the master that
// failed, and of the new one. Limiters with rare calls are notified of the end of the outage, too.
func TestSentinelsMasterIsNamed(t *testing.T) {
	t.Parallel()
	check.Rounds(t, failoverTimeouts, func(t *check.Round, timeout time.Duration) {
		g := redistest.Sentinel(t)
		l, watch := watched(g.Client(t), "named", many(), core.FailClosed(), core.Timeout(timeout))
		awaitRedis(t, l, "k")
		master := g.Master()
		master.Stop()
		_ = byRedis(t, l)
		// If the failover is over before the first probe of a busy process, there is no outage.
		if !check.Eventually(t, "Redis is away", func() bool { return watch.count(core.EventFallbackOn) > 0 }) {
			return
		}
		if lines := watch.warnings(); len(lines) == 0 || !strings.Contains(lines[0], master.Addr) {
			t.Errorf("the logged lines are %q, want the first to have the address of the master, %s", lines, master.Addr)
		}
		check.Within(t, failoverLimit, "another master", func() bool { return g.Master() != master })
		check.Eventually(t, "the end of the outage is reported without a call", func() bool { return watch.count(core.EventFallbackOff) > 0 })
		if !byRedis(t, l) { // l is used here because a Limiter that is garbage would not be notified
			t.Error("a call was not decided by Redis, want a decision by the new master")
		}
		if lines := watch.warnings(); len(lines) == 0 || !strings.Contains(lines[len(lines)-1], "server="+g.Master().Addr) {
			t.Errorf("the logged lines are %q, want the last to have the address of the new master, %s", lines, g.Master().Addr)
		}
		watch.wantOutages(t, 1)
	})
}
