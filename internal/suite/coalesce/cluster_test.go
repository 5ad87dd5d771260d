package coalesce

import (
	"fmt"
	"net"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

func onCluster(client *redis.ClusterClient) *backend {
	return newBackend(client, 3)
}

// While one node hangs only the callers of its keys wait.
func TestPausedNode(t *testing.T) {
	t.Parallel()
	c := redistest.ClusterWithReplicas(t, "--cluster-node-timeout", "60000")
	s := onCluster(c.Client(t))
	lim := s.limiter(t, "paused", tenPerHour)
	keys := s.keys(t, 1)
	hangs := keys[0]
	node := c.Owner(fmt.Sprintf("rl:paused:{%s}:fixed-1h", hangs))
	node.Pause()
	defer func() { node.Resume() }()
	var waiting []*answer
	for range 8 {
		waiting = append(waiting, start(t.Context(), lim, request{key: hangs, n: 1}))
	}
	var others []*answer
	for i := range 20 {
		others = append(others, start(t.Context(), lim, request{key: keys[1+i%2], n: 1}))
	}
	used := map[int64]int{}
	for _, o := range others {
		if o.await(t); o.err != nil || !o.Allowed || o.Source != core.SourceRedis {
			t.Errorf("on another node: %+v, %v", o.Result, o.err)
		}
		used[o.Remaining]++
	}
	for i := range int64(10) {
		if used[i] != 2 {
			t.Errorf("%d answers say that %d remain, want one of each node", used[i], i)
		}
	}
	for _, o := range waiting {
		select {
		case <-o.done:
			t.Errorf("a node that hangs has answered: %+v, %v", o.Result, o.err)
		default:
		}
	}
	node.Resume()
	used = map[int64]int{}
	for _, o := range waiting {
		if o.await(t); o.err != nil || !o.Allowed {
			t.Errorf("on the node that hung: %+v, %v", o.Result, o.err)
		}
		used[o.Remaining]++
	}
	for i := int64(2); i < 10; i++ {
		if used[i] != 1 {
			t.Errorf("%d answers say that %d remain, want one", used[i], i)
		}
	}
}

// A slot moves while decisions on its keys share scripts with others: to where
// the node says that it is (ASK), and then to where it has gone (MOVED). The
// destination may not have the script. Each decision is made once.
func TestSlotMoves(t *testing.T) {
	t.Parallel()
	client := redistest.ClusterClient(t, redistest.Cluster(t))
	s := onCluster(client)
	lim := s.limiter(t, "moves", tenPerHour)
	moved := s.keys(t, 1)[0]
	var stays string // on the same node
	from, err := client.MasterForKey(t.Context(), moved)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; stays == ""; i++ {
		key := fmt.Sprint("stays", i)
		if node, err := client.MasterForKey(t.Context(), key); err == nil && node == from {
			stays = key
		}
	}
	var to *redis.Client
	for _, key := range s.keys(t, 1) {
		if node, err := client.MasterForKey(t.Context(), key); err == nil && node != from {
			to = node
		}
	}
	slot := client.ClusterKeySlot(t.Context(), moved).Val()
	source, target := id(t, from), id(t, to)
	left := map[string]int64{moved: 10, stays: 10}
	three := func(when string) {
		t.Helper()
		requests := []request{{moved, 1, false}, {stays, 1, false}, {moved, 1, false}}
		all := s.batch(t, lim, requests)
		for i, a := range requests {
			left[a.key]--
			all[i].want(t, fmt.Sprintf("%s: %+v", when, a), true, all[i].Remaining)
		}
		// What is redirected may be run in another order than that in which it came.
		if low, high := min(all[0].Remaining, all[2].Remaining), max(all[0].Remaining, all[2].Remaining); low != left[moved] || high != low+1 {
			t.Errorf("%s: %d and %d remain, want %d and %d", when, all[0].Remaining, all[2].Remaining, left[moved]+1, left[moved])
		}
		if all[1].Remaining != left[stays] {
			t.Errorf("%s: beside it %d remain, want %d", when, all[1].Remaining, left[stays])
		}
	}
	do := func(node *redis.Client, args ...any) {
		t.Helper()
		if err := node.Do(t.Context(), args...).Err(); err != nil {
			t.Fatalf("%v: %v", args, err)
		}
	}
	three("at home")
	do(to, "cluster", "setslot", slot, "importing", source)
	do(from, "cluster", "setslot", slot, "migrating", target)
	three("about to move")
	host, port, _ := net.SplitHostPort(to.Options().Addr)
	do(from, "migrate", host, port, "rl:moves:{"+moved+"}:fixed-1h", 0, 5000)
	three("the key has moved, the slot has not")
	do(to, "cluster", "setslot", slot, "node", target)
	do(from, "cluster", "setslot", slot, "node", target)
	three("the slot has moved")
	if !check.Eventually(t, "the client knows where the slot is", func() bool {
		node, err := client.MasterForKey(t.Context(), moved)
		return err == nil && node == to
	}) {
		return
	}
	requests := []request{{moved, 1, false}, {stays, 1, false}}
	for i, o := range s.batch(t, lim, requests) {
		left[requests[i].key]--
		o.want(t, "the client knows", true, left[requests[i].key])
	}
}

func id(t *testing.T, node *redis.Client) string {
	t.Helper()
	id, err := node.Do(t.Context(), "cluster", "myid").Text()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// Level: batches on a Cluster. A script that the nodes have forgotten is sent to them
// again, and each decision made once.
func TestScriptFlushedOnCluster(t *testing.T) {
	t.Parallel()
	client := redistest.ClusterClient(t, redistest.Cluster(t))
	s := onCluster(client)
	lim := s.limiter(t, "flushed", core.FixedWindow(core.PerHour(1000)))
	keys := s.keys(t, 2)
	var requests []request
	for i := range 30 {
		requests = append(requests, request{key: keys[i%len(keys)], n: 1})
	}
	busy := s.occupy(t, lim)
	var all []*answer
	for _, a := range requests {
		all = append(all, enqueue(t.Context(), t, lim, a))
	}
	s.gate.Release(t, len(busy))
	for _, o := range busy {
		o.await(t)
	}
	s.gate.Await(t, s.nodes) // a batch to each
	for _, key := range s.keys(t, 1) {
		node, err := client.MasterForKey(t.Context(), key)
		if err == nil {
			err = node.ScriptFlush(t.Context()).Err()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	s.gate.Open()
	answers := map[string]bool{}
	for i, o := range all {
		if o.await(t); o.err != nil || !o.Allowed {
			t.Errorf("%+v, %v", o.Result, o.err)
		}
		answers[fmt.Sprint(requests[i].key, o.Remaining)] = true
	}
	if sent, evals := s.gate.Sent(); len(sent) != len(busy)+2*s.nodes || evals != s.nodes {
		t.Errorf("scripts of %v keys, %d with their source; want each batch sent twice", sent, evals)
	}
	for _, key := range keys {
		for i := range 5 {
			if !answers[fmt.Sprint(key, 999-i)] {
				t.Errorf("no answer says that %d remain of %s", 999-i, key)
			}
		}
	}
}
