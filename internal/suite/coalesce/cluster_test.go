package coalesce

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/gate"
	"github.com/redislimit/redislimit/internal/testkit/permits"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

// tenEach are several limits of ten units each.
var tenEach = []core.Option{tenPerHour, core.TokenBucket(core.PerHour(10)), core.SlidingWindowLog(core.PerHour(10))}

func onCluster(client *redis.ClusterClient) *backend { return newBackend(client, 3) }

// keysOfOne returns n keys of one node of a Cluster that are in different hash slots, and that node and another node.
func keysOfOne(t testing.TB, client *redis.ClusterClient, n int) (keys []string, node, other *redis.Client) {
	t.Helper()
	slots := map[int64]bool{}
	for i := 0; len(keys) < n || other == nil; i++ {
		key := fmt.Sprint("key", i)
		master, err := client.MasterForKey(t.Context(), key)
		check.Need(t, err)
		slot := client.ClusterKeySlot(t.Context(), key).Val()
		switch {
		case node == nil || node == master && len(keys) < n && !slots[slot]:
			node, keys, slots[slot] = master, append(keys, key), true
		case node != master:
			other = master
		}
	}
	return keys, node, other
}

// shared returns how many scripts were sent that have the keys of several decisions. A script that a server does not know
// yet is sent twice, and counts once.
func (s *backend) shared() int {
	_, evals := s.gate.Sent()
	return s.gate.Undeclared() - evals
}

// TestScriptsOfCluster checks that a batch for a node of a Cluster is one script with keys of several hash slots, also if
// limits have different numbers. Calls on keys with holds share another script. The test would notice batches that are
// pipelines of scripts, which take Redis twice as long.
func TestScriptsOfCluster(t *testing.T) {
	t.Parallel()
	client := redistest.ClusterClient(t, redistest.Cluster(t))
	s := onCluster(client)
	for name, limits := range map[string][]core.Option{"one": {tenPerHour}, "several": tenEach} {
		t.Run(name, func(t *testing.T) {
			lim := s.limiter(t, "scripts-"+name, limits...)
			keys, _, _ := keysOfOne(t, client, 20)
			var requests []request
			for i := range 60 {
				requests = append(requests, request{keys[i%len(keys)], 1, false})
			}
			for round := range 3 { // several rounds, because a script sent to a random node would sometimes reach the right one
				for i, a := range s.batch(t, lim, requests) {
					a.want(t, fmt.Sprint("caller ", i), true, int64(9-3*round-i/len(keys)))
				}
				if sent, _ := s.gate.Sent(); sent[len(sent)-1] != 60*len(limits) || s.shared() != 1 {
					t.Errorf("scripts with %v keys were sent, %d of them with undeclared keys; want one for all 60 decisions", sent, s.shared())
				}
			}

			c := s.caller(t, lim)
			for i, key := range keys {
				numbers := []core.Limit{core.FixedWindow(core.PerHour(int64(9 + i)))}
				if len(limits) > 1 {
					numbers = append(numbers, core.TokenBucket(core.PerHour(1000)), core.SlidingWindowLog(core.PerHour(1000)))
				}
				own, err := lim.With(numbers...)
				check.Need(t, err)
				c.enqueue("by other limits", request{key, 1, false}.of(own))
			}
			for i, a := range c.send() {
				a.want(t, fmt.Sprint("by other limits, caller ", i), i > 0, int64(max(0, i-1))) // nine units were used
			}
			if s.shared() != 1 {
				t.Errorf("%d scripts with undeclared keys were sent, want one for limits of different numbers", s.shared())
			}

			c = s.caller(t, lim)
			for _, key := range keys {
				c.reserve("held-"+key+"{"+key+"}", 1)
			}
			c.send()
			c.wantAll()
			if s.shared() == 0 {
				t.Error("no script with undeclared keys was sent for calls that hold units, want one")
			}
		})
	}
}

// TestTwoSlotsMove moves two slots at the same time, as redis-cli moves many. The key of one slot has not been moved yet,
// and decisions on the keys of both slots share a batch. The test would notice a script that is redirected to the node of
// the first key: there the other key would not be found, and would be treated as a new key.
func TestTwoSlotsMove(t *testing.T) {
	t.Parallel()
	client := redistest.ClusterClient(t, redistest.Cluster(t))
	s := onCluster(client)
	lim := s.limiter(t, "two", tenPerHour)
	keys, from, to := keysOfOne(t, client, 3)
	fresh, charged, stays := keys[0], keys[1], keys[2]
	for i, a := range s.batch(t, lim, []request{{charged, 7, false}, {stays, 1, false}}) {
		a.want(t, "before the move", true, []int64{3, 9}[i])
	}
	for _, key := range []string{fresh, charged} {
		redistest.BeginMove(t, client.ClusterKeySlot(t.Context(), key).Val(), from, to)
	}
	requests := []request{{fresh, 1, false}, {charged, 3, false}, {stays, 1, false}, {charged, 3, false}, {fresh, 1, false}}
	left, admitted := map[string]int64{}, map[string]int{}
	for i, a := range s.batch(t, lim, requests) {
		if a.await(t); a.err != nil {
			t.Errorf("%+v: got error %v, want nil", requests[i], a.err)
		}
		if a.Allowed {
			admitted[requests[i].key]++
		}
		left[requests[i].key] = a.Remaining
	}
	if admitted[fresh] != 2 || admitted[charged] != 1 || admitted[stays] != 1 || left[charged] != 0 || left[stays] != 8 {
		t.Errorf("%v calls were admitted, and %v units remain; want one of the two calls on %s admitted, which had 3 units", admitted, left, charged)
	}
	for _, a := range s.batch(t, lim, []request{{fresh, 1, false}}) {
		a.want(t, "a batch of one call, whose slot moves", true, 7)
	}
	if res, err := lim.Peek(t.Context(), fresh); err != nil || res.Remaining != 7 {
		t.Errorf("%d units remain of the key that was new, %v; want 7", res.Remaining, err)
	}
}

// TestOthersWhileKeysAreApart makes as many decisions as may be in flight to a node whose keys are on two nodes, so that
// the decisions are repeated until the keys are together. Other decisions of that node do not wait for this: a slot that
// moves does not fill the queue.
func TestOthersWhileKeysAreApart(t *testing.T) {
	t.Parallel()
	client := redistest.ClusterClient(t, redistest.Cluster(t))
	s := onCluster(client)
	lim := s.limiter(t, "others", tenEach...)
	keys, from, to := keysOfOne(t, client, 2)
	moves, stays := keys[0], keys[1]
	for _, a := range s.batch(t, lim, []request{{moves, 1, false}}) {
		a.want(t, "before the move", true, 9)
	}
	slot := client.ClusterKeySlot(t.Context(), moves).Val()
	redistest.BeginMove(t, slot, from, to)
	stored := from.ClusterGetKeysInSlot(t.Context(), int(slot), 10).Val()
	redistest.MoveKey(t, from, to, stored[0])
	s.gate.Hold(t)
	var apart []*answer
	for range maxInFlightOfNode {
		apart = append(apart, start(t.Context(), request{moves, 1, false}.of(lim)))
		s.gate.Await(t, 1)
	}
	s.gate.Release(t, maxInFlightOfNode)
	s.gate.Await(t, maxInFlightOfNode) // each decision is repeated
	s.gate.Open()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // shorter than the Timeout of the others
	defer cancel()
	for range 5 {
		if res, err := lim.Allow(ctx, stays); err != nil || !res.Allowed {
			t.Fatalf("a decision on another slot: got %+v, %v; want it allowed", res, err)
		}
	}
	for _, key := range stored[1:] {
		redistest.MoveKey(t, from, to, key)
	}
	for _, a := range apart {
		if a.await(t); a.err != nil || !a.Allowed {
			t.Errorf("a decision whose keys are together again: got %+v, %v; want it allowed", a.Result, a.err)
		}
	}
}

// TestSlotMoves moves a slot while decisions on its keys, and settlements of holds, share scripts with other calls. The
// node first redirects them with ASK, and after the move with MOVED. The destination may not know the script. Each call is
// carried out once.
func TestSlotMoves(t *testing.T) {
	t.Parallel()
	client := redistest.ClusterClient(t, redistest.Cluster(t))
	s := onCluster(client)
	lim := s.limiter(t, "moves", core.FixedWindow(core.PerHour(1000)))
	keys, from, to := keysOfOne(t, client, 2)
	moves, stays := keys[0], keys[1]
	var all []*permits.Any
	for range 4 {
		all = append(all, must(t)(permits.Reserve(lim, t.Context(), moves, 10)))
	}
	slot := client.ClusterKeySlot(t.Context(), moves).Val()
	remain := map[string]int64{moves: 960, stays: 1000}
	for i, move := range []func(){
		func() {},
		func() { redistest.BeginMove(t, slot, from, to) },
		func() { redistest.MoveKey(t, from, to, "rl:moves:{"+moves+"}:fixed-1h") },
		func() { redistest.EndMove(t, slot, from, to) },
	} {
		move()
		c := s.caller(t, lim)
		c.settle(all[i], 3)
		c.reserve("other", 1)
		c.allow(moves, 1)
		c.allow(stays, 1)
		c.allow(moves, 1)
		c.send()
		c.wantAll()
		remain[moves] += 10 - 3 - 2
		remain[stays]--
		left(t, lim, remain)
	}
}

// TestUndeclaredRefused checks that the library finds out once, by keys that belong to no user, that a node of a Cluster
// does not run scripts with keys of several slots. From then on its batches are pipelines, without another attempt.
func TestUndeclaredRefused(t *testing.T) {
	t.Parallel()
	addrs := redistest.Cluster(t)
	for name, script := range map[string]func(string) string{
		// After this line Redis 7 allows keys of one slot only. (Redis 6.0 cannot read it.)
		"refused": func(source string) string { return "#!lua\n" + source },
		// As on a server of several parts, where a script sees only the keys of the part that runs it.
		"unseen":    func(source string) string { return strings.ReplaceAll(source, "'GET', key", "'GET', key .. 'other'") },
		"unchanged": func(source string) string { return strings.ReplaceAll(source, "'SET', key", "'SET', key .. 'other'") },
	} {
		t.Run(name, func(t *testing.T) {
			client := redistest.ClusterClient(t, addrs)
			s := newBackend(client, 3)
			var checks atomic.Int32 // how often the library checked whether a node runs such scripts
			client.AddHook(gate.Around(func(cmds []redis.Cmder, send func() error) error {
				for _, cmd := range cmds {
					args := cmd.Args()
					if source, ok := args[1].(string); ok && cmd.Name() == "eval" && fmt.Sprint(args[2]) == "0" {
						args[1] = script(source)
						defer checks.Add(1)
					}
				}
				return send()
			}))
			s.known = true // findOut would wait for scripts that are never sent
			lim := s.limiter(t, name, tenPerHour)
			keys, _, _ := keysOfOne(t, client, 5)
			for round := range int64(6) {
				var requests []request
				for _, key := range keys {
					requests = append(requests, request{key, 1, false})
				}
				for _, a := range s.batch(t, lim, requests) {
					a.want(t, fmt.Sprint("round ", round), true, 9-round)
				}
				if sent, _ := s.gate.Sent(); s.gate.Undeclared() != 0 || !slices.Contains(sent, len(keys)) {
					t.Errorf("round %d: scripts with %v keys were sent, %d of them with undeclared keys; want a pipeline", round, sent, s.gate.Undeclared())
				}
				check.Eventually(t, "the node is checked", func() bool { return checks.Load() > 0 })
				if round == 4 {
					time.Sleep(1100 * time.Millisecond) // a node whose check had no result would be checked again after a second
				}
			}
			if n := int(checks.Load()); n > s.nodes {
				t.Errorf("%d checks were made, want at most one for each node", n)
			}
		})
	}
}

// TestForbiddenKey makes calls in a batch on several keys, one of which the user may not touch. Only the calls on that key
// fail, although a server refuses the batch as a whole: each call is then made alone. Each of the other calls is carried
// out once.
func TestForbiddenKey(t *testing.T) {
	t.Parallel()
	onBoth(t, newBackend, func(t *testing.T, s *backend) {
		for name, limits := range map[string][]core.Option{"one": {tenPerHour}, "several": tenEach} {
			t.Run(name, func(t *testing.T) {
				lim := s.limiter(t, "forbidden-"+name, limits...)
				keys := s.keys(t, 4)
				rules, forbidden := []any{"acl", "setuser", "default", "resetkeys"}, keys[2]
				c := s.caller(t, lim)
				for _, key := range keys {
					c.allow(key, 1)
					if key != forbidden {
						rules = append(rules, "~rl:forbidden-"+name+":{"+key+"}*")
					}
				}
				for _, key := range keys {
					c.reserve(key, 2)
				}
				c.gather()
				s.doAll(t, rules...)
				defer s.doAll(t, "acl", "setuser", "default", "allkeys")
				for i, a := range c.send() {
					switch key := keys[i%len(keys)]; {
					case key != forbidden && s.node(t, key) == s.node(t, forbidden): // made alone, the calls have no order
						if a.err != nil || !a.Allowed || a.Source != core.SourceRedis {
							t.Errorf("call %d: got %+v, %v; want it admitted by Redis", i, a.Result, a.err)
						}
					case key != forbidden:
						a.want(t, fmt.Sprint("call ", i), true, []int64{7, 8}[i/len(keys)]) // in a batch reservations are made before ordinary decisions
					default:
						a.wantUnavailable(t, fmt.Sprint("call ", i))
						if a.err != nil && !strings.Contains(a.err.Error(), "permission") {
							t.Errorf("call %d: got error %v, want the error of Redis", i, a.err)
						}
					}
				}
				for _, key := range slices.DeleteFunc(keys, func(key string) bool { return key == forbidden }) {
					if res, err := lim.Peek(t.Context(), key); err != nil || res.Remaining != 7 {
						t.Errorf("key %s: %d units remain, %v; want 7", key, res.Remaining, err)
					}
				}
			})
		}
	})
}

// TestFailsAfterCharge checks that a decision that fails after it was charged is not made again, and that the other
// decisions of its batch are made. Here the user may not set the expiry of a log.
func TestFailsAfterCharge(t *testing.T) {
	t.Parallel()
	onBoth(t, newBackend, func(t *testing.T, s *backend) {
		for name, limits := range map[string][]core.Option{
			"one": {core.SlidingWindowLog(core.PerHour(10))}, "several": {tenPerHour, core.SlidingWindowLog(core.PerHour(10))},
		} {
			t.Run(name, func(t *testing.T) {
				lim := s.limiter(t, "half-"+name, limits...)
				c := s.caller(t, lim)
				keys := s.keys(t, 3)
				for _, key := range append(keys, keys...) {
					c.allow(key, 1)
				}
				all := c.all
				peek := c.request(request{keys[0], 1, true})
				s.doAll(t, "acl", "setuser", "default", "-pexpireat")
				c.send()
				for i, a := range all {
					a.wantUnavailable(t, fmt.Sprint("caller ", i))
				}
				peek.want(t, "the other call of the batch", true, 8)
				s.doAll(t, "acl", "setuser", "default", "+pexpireat")
				s.awaitRedis(t, lim)
				for _, key := range keys {
					res, err := lim.Peek(t.Context(), key)
					check.Need(t, err)
					for limit := range res.All() {
						if limit.Remaining != 8 {
							t.Errorf("key %s: %d units of %s remain, want 8", key, limit.Remaining, limit.LimitName)
						}
					}
				}
			})
		}
	})
}
