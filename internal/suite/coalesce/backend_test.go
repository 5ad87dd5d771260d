package coalesce

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/gate"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

// maxInFlight is how many calls to one server may be in flight before the next decisions wait for one of them: what the
// doc comment of core.Coalesce says, which TestCommands holds the library to.
const maxInFlight = 4

// maxInFlightOfNode is that of a node of a Cluster.
const maxInFlightOfNode = 2

// A backend is one server, or a Cluster, with a gate before its client.
type backend struct {
	client  redis.UniversalClient
	gate    *gate.Gate
	advance func(time.Duration) // the clock
	nodes   int                 // how many servers it has
	known   bool                // that one server has all keys
}

// newBackend puts a gate before client, which is one of so many servers.
func newBackend(client redis.UniversalClient, nodes int) *backend {
	s := &backend{client: client, gate: &gate.Gate{}, nodes: nodes}
	client.AddHook(s.gate)
	return s
}

// backends are those to which batches are sent in different ways: in one script, and in one to each node, whose keys are
// not declared.
func backends() map[string]func(*testing.T) *backend {
	return map[string]func(*testing.T) *backend{
		"Redis":   func(t *testing.T) *backend { return onRedis(t) },
		"Cluster": func(t *testing.T) *backend { return onCluster(redistest.ClusterClient(t, redistest.Cluster(t))) },
	}
}

func (s *backend) limiter(t *testing.T, name string, options ...core.Option) *core.Limiter {
	t.Helper()
	s.findOut(t)
	lim := core.MustNew(s.client, name, append(exactly, options...)...)
	for range 2 { // the nodes are known, and each has the script
		for _, key := range s.keys(t, 1) {
			if _, err := lim.Peek(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
	}
	return lim
}

// findOut makes the first batches, before which it is found out whether one script may have the keys of several
// decisions: what a test does to the server must not come in between.
func (s *backend) findOut(t *testing.T) {
	t.Helper()
	if s.known {
		return
	}
	s.known = true
	lim := core.MustNew(s.client, "first", append(exactly, tenPerHour)...)
	_, onCluster := s.client.(*redis.ClusterClient)
	if onCluster {
		for _, key := range s.keys(t, 1) { // so that the nodes are known
			_, _ = lim.Peek(t.Context(), key)
		}
	}
	var requests []request
	for _, key := range s.keys(t, 2) {
		requests = append(requests, request{key, 1, true})
	}
	check.Eventually(t, "the batch of each node is one script", func() bool {
		for _, a := range s.batch(t, lim, requests) {
			a.want(t, "the first batch", true, 10)
		}
		return !onCluster || s.gate.Undeclared() == s.nodes
	})
}

// exactly are the options by which Redis alone decides.
var exactly = []core.Option{core.DenyCache(0), core.FailClosed(), core.Timeout(time.Minute)}

// A request is one decision that a test wants.
type request struct {
	key  string
	n    int64
	peek bool
}

func (q request) of(ctx context.Context, lim *core.Limiter) (core.Result, error) {
	if q.peek {
		return lim.Peek(ctx, q.key)
	}
	return lim.AllowN(ctx, q.key, q.n)
}

// An answer is what a request returned.
type answer struct {
	core.Result

	err      error
	panicked any           // what the call panicked with
	done     chan struct{} // closed then
}

func (a *answer) await(t *testing.T) *answer {
	t.Helper()
	check.Receive(t, "a caller has an answer", a.done)
	return a
}

// start makes a request in a goroutine, and does not wait for it.
func start(ctx context.Context, lim *core.Limiter, q request) *answer {
	a := &answer{done: make(chan struct{})}
	go func() {
		defer close(a.done)
		defer func() {
			if a.panicked = recover(); a.panicked != nil {
				a.err = fmt.Errorf("it panicked: %v", a.panicked)
			}
		}()
		a.Result, a.err = q.of(ctx, lim)
	}()
	return a
}

// A waitContext notices when its caller begins to wait for it to end.
type waitContext struct {
	context.Context

	once    sync.Once
	waiting chan struct{}
}

func (c *waitContext) Done() <-chan struct{} {
	c.once.Do(func() { close(c.waiting) })
	return c.Context.Done()
}

// enqueue makes a request in a goroutine, and returns once it waits for a batch. The gate must be held and full.
func enqueue(ctx context.Context, t *testing.T, lim *core.Limiter, q request) *answer {
	t.Helper()
	c := &waitContext{Context: ctx, waiting: make(chan struct{})}
	a := start(c, lim, q)
	check.Receive(t, fmt.Sprintf("%+v waits", q), c.waiting)
	return a
}

// occupy holds as many Peeks at the gate, on each node, as make later requests wait for a batch. One comes after the
// other: a call that has its answer may still count as in flight, and would take two of them along together.
func (s *backend) occupy(t *testing.T, lim *core.Limiter) []*answer {
	t.Helper()
	s.gate.Hold(t)
	var busy []*answer
	each := maxInFlight
	if _, onCluster := s.client.(*redis.ClusterClient); onCluster {
		each = maxInFlightOfNode
	}
	for _, key := range s.keys(t, each) {
		busy = append(busy, start(t.Context(), lim, request{key: key, peek: true}))
		s.gate.Await(t, 1)
	}
	return busy
}

// keys returns n keys of each node.
func (s *backend) keys(t *testing.T, n int) []string {
	t.Helper()
	cluster, ok := s.client.(*redis.ClusterClient)
	byNode := map[string]int{}
	var keys []string
	for i := 0; len(keys) < n*s.nodes; i++ {
		key, node := fmt.Sprint("busy", i), ""
		if ok {
			master, err := cluster.MasterForKey(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			node = master.Options().Addr
		}
		if byNode[node]++; byNode[node] <= n {
			keys = append(keys, key)
		}
	}
	return keys
}

// batch makes all requests in this order, in one batch to each server.
func (s *backend) batch(t *testing.T, lim *core.Limiter, requests []request) []*answer {
	t.Helper()
	busy := s.occupy(t, lim)
	all := make([]*answer, len(requests))
	for i, q := range requests {
		all[i] = enqueue(t.Context(), t, lim, q)
	}
	s.gate.Open()
	for _, a := range append(slices.Clone(busy), all...) {
		a.await(t)
	}
	for _, a := range busy {
		if a.err != nil {
			t.Errorf("a Peek before the batch: %v", a.err)
		}
	}
	return all
}

// sent checks how many keys the scripts had since the gate was held: one each of those that occupied it, and these.
func (s *backend) sent(t *testing.T, batches ...int) {
	t.Helper()
	want := append(slices.Repeat([]int{1}, maxInFlight), batches...)
	if got, _ := s.gate.Sent(); !slices.Equal(got, want) {
		t.Errorf("scripts of %v keys were sent, want %v", got, want)
	}
}

// want checks a decision of Redis's that left so much.
func (a *answer) want(t *testing.T, what string, allowed bool, remaining int64) {
	t.Helper()
	a.await(t)
	if a.err != nil || a.Allowed != allowed || a.Remaining != remaining || a.Source != core.SourceRedis {
		t.Errorf("%s: allowed %v, remaining %d of %v, %v; want %v, %d", what, a.Allowed, a.Remaining, a.Source, a.err, allowed, remaining)
	}
}

// wantEnded checks that a call returned the error of its context.
func (a *answer) wantEnded(t *testing.T, what string, want error) {
	t.Helper()
	if a.await(t); !errors.Is(a.err, want) || a.Allowed {
		t.Errorf("%s: %+v, %v; want %v", what, a.Result, a.err, want)
	}
}

// wantUnavailable checks that a call was refused because Redis could not answer.
func (a *answer) wantUnavailable(t *testing.T, what string) {
	t.Helper()
	if a.await(t); !errors.Is(a.err, core.ErrUnavailable) || a.Allowed {
		t.Errorf("%s: %+v, %v; want ErrUnavailable", what, a.Result, a.err)
	}
}
