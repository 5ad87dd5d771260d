package coalesce

import (
	"context"
	"errors"
	"fmt"
	"runtime/pprof"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/coreaccess"
	"github.com/redislimit/redislimit/internal/inside"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/gate"
	"github.com/redislimit/redislimit/internal/testkit/permits"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

// maxInFlight is how many calls to one server may be in flight before the next decisions wait for one of them, as the doc
// comment of core.MaxBatch says. TestCommands checks that the library keeps to it.
const maxInFlight = 4

// maxInFlightOfNode is maxInFlight for a node of a Cluster.
const maxInFlightOfNode = 2

// A backend is one server, or a Cluster, with a gate in front of its client.
type backend struct {
	client  redis.UniversalClient
	gate    *gate.Gate
	advance func(time.Duration) // moves the clock, if it is driven
	now     func() time.Time    // the time of the clock, if it is driven
	nodes   int                 // how many servers it has
	known   bool                // findOut has run
}

// newBackend puts a gate in front of client, whose deployment has the given number of servers.
func newBackend(client redis.UniversalClient, nodes int) *backend {
	s := &backend{client: client, gate: &gate.Gate{}, nodes: nodes}
	client.AddHook(s.gate)
	return s
}

// onBoth runs a test on a server and on a Cluster, to which batches are sent in different ways: to the server as one
// script, and to each node of the Cluster as a script with undeclared keys. open makes the backend of a client with the
// given number of nodes.
func onBoth(t *testing.T, open func(client redis.UniversalClient, nodes int) *backend, f func(t *testing.T, s *backend)) {
	t.Helper()
	t.Run("Redis", func(t *testing.T) {
		t.Parallel()
		f(t, open(redistest.Server(t).Client(t), 1))
	})
	t.Run("Cluster", func(t *testing.T) {
		t.Parallel()
		f(t, open(redistest.ClusterClient(t, redistest.Cluster(t)), 3))
	})
}

// limiter returns a Limiter on the backend, which decides by Redis alone, after each node has got its script.
func (s *backend) limiter(t testing.TB, name string, options ...core.Option) *core.Limiter {
	t.Helper()
	s.findOut(t)
	if s.now != nil {
		options = append(options, inside.Core.Simulate(coreaccess.Simulation{Wall: s.now}))
	}
	lim := core.MustNew(s.client, name, append(exactly, options...)...)
	for range 2 { // afterwards go-redis knows the nodes, and each has the script
		for _, key := range s.keys(t, 1) {
			if _, err := lim.Peek(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
	}
	return lim
}

// findOut makes the first batches. With these the library finds out whether one script may use the keys of several
// decisions. A test changes the server only after that, so that it does not disturb the library's check.
func (s *backend) findOut(t testing.TB) {
	t.Helper()
	if s.known {
		return
	}
	s.known = true
	lim := core.MustNew(s.client, "first", append(exactly, tenPerHour)...)
	_, onCluster := s.client.(*redis.ClusterClient)
	if onCluster {
		for _, key := range s.keys(t, 1) { // makes go-redis know the nodes
			_, _ = lim.Peek(t.Context(), key)
		}
	}
	var requests []request
	for _, key := range s.keys(t, 2) {
		requests = append(requests, request{key, 1, true})
	}
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		for _, a := range s.batch(t, lim, requests) {
			a.want(t, "the first batch", true, 10)
		}
		if !onCluster || s.gate.Undeclared() == s.nodes || alone.Load() {
			return
		}
		if time.Now().After(end) {
			alone.Store(true)
		}
	}
}

// alone is set once a Cluster was seen to which no scripts with the keys of several decisions are sent, because some
// servers do not run them. After that no test waits for those scripts.
var alone atomic.Bool

// exactly are the options with which Redis makes every decision.
var exactly = []core.Option{core.DenyCache(0), core.FailClosed(), core.Timeout(time.Minute)}

// A request is a decision that a test makes.
type request struct {
	key  string
	n    int64
	peek bool
}

// of returns the call of lim that makes the request.
func (q request) of(lim *core.Limiter) call {
	return func(ctx context.Context) (*permits.Any, error) {
		if q.peek {
			return plain(lim.Peek(ctx, q.key))
		}
		return plain(lim.AllowN(ctx, q.key, q.n))
	}
}

// acquire is like of, but the call returns a handle that can take back the charge.
func (q request) acquire(lim *core.Limiter) call {
	return func(ctx context.Context) (*permits.Any, error) { return permits.Acquire(lim, ctx, q.key, q.n) }
}

// An answer receives what a call returned.
type answer struct {
	core.Result

	held *permits.Any // the returned handle
	err  error
	done chan struct{} // closed when the call has returned
}

// await waits until the call has returned.
func (a *answer) await(t testing.TB) *answer {
	t.Helper()
	check.Receive(t, "a caller has an answer", a.done)
	return a
}

// goneWithout reports whether the call ended its goroutine without returning.
func (a *answer) goneWithout() bool { return a.held == nil && a.err == nil }

// ofHook reports whether the call returned the error that says that a hook of the client ended it. This error is not
// ErrUnavailable.
func (a *answer) ofHook() bool {
	return a.err != nil && strings.Contains(a.err.Error(), "a hook of the client") && !errors.Is(a.err, core.ErrUnavailable)
}

// A call is a call of a Limiter. If the method returns no Result, the call returns nil.
type call func(ctx context.Context) (*permits.Any, error)

// plain wraps a Result in a handle that holds nothing.
func plain(res core.Result, err error) (*permits.Any, error) {
	return &permits.Any{Result: res}, err
}

// start makes a call in a goroutine, and does not wait for it.
func start(ctx context.Context, f call) *answer {
	a := &answer{done: make(chan struct{})}
	go func() {
		defer close(a.done)
		a.held, a.err = f(ctx)
		if a.held != nil {
			a.Result = a.held.Result
		}
	}()
	return a
}

// enqueue makes a call in a goroutine, and returns once the call waits for a batch. The gate must be held, with as many
// calls in front of it as may be in flight.
func enqueue(ctx context.Context, t testing.TB, what string, f call) *answer {
	t.Helper()
	w := check.NewWaiter(ctx)
	a := start(w, f)
	check.Receive(t, what+" waits", w.Waits())
	return a
}

// A caller makes calls that wait for one batch, behind the calls that are in flight.
type caller struct {
	*backend

	t    testing.TB
	lim  *core.Limiter
	busy []*answer // the calls in flight
	all  []*answer // the calls that wait
}

// caller holds calls in flight at the gate, and returns a caller whose calls wait behind them.
func (s *backend) caller(t testing.TB, lim *core.Limiter) *caller {
	t.Helper()
	return &caller{backend: s, t: t, lim: lim, busy: s.occupy(t, lim)}
}

func (c *caller) enqueue(what string, f call) *answer {
	c.t.Helper()
	return c.enqueueWith(c.t.Context(), what, f)
}

func (c *caller) enqueueWith(ctx context.Context, what string, f call) *answer {
	c.t.Helper()
	a := enqueue(ctx, c.t, what, f)
	c.all = append(c.all, a)
	return a
}

func (c *caller) request(q request) *answer {
	c.t.Helper()
	return c.enqueue(fmt.Sprintf("%+v", q), q.of(c.lim))
}

func (c *caller) allow(key string, n int64) *answer {
	c.t.Helper()
	return c.request(request{key: key, n: n})
}

func (c *caller) reserve(key string, n int64) *answer {
	c.t.Helper()
	return c.enqueue("Reserve "+key, func(ctx context.Context) (*permits.Any, error) { return permits.Reserve(c.lim, ctx, key, n) })
}

// settle makes a call that is sent whatever becomes of its context, and returns once the call waits for a batch. Unlike
// other calls it does not watch its context while it waits, so settle looks at the stack of its goroutine.
func (c *caller) settle(r *permits.Any, actual int64) *answer {
	c.t.Helper()
	label := fmt.Sprint("settle ", labels.Add(1))
	a := start(c.t.Context(), func(ctx context.Context) (_ *permits.Any, err error) {
		pprof.Do(ctx, pprof.Labels("call", label), func(ctx context.Context) { err = r.Settle(ctx, actual) })
		return nil, err
	})
	check.Eventually(c.t, label+" waits", func() bool {
		var stacks strings.Builder
		_ = pprof.Lookup("goroutine").WriteTo(&stacks, 1)
		for stack := range strings.SplitSeq(stacks.String(), "\n\n") {
			if strings.Contains(stack, label+`"`) && strings.Contains(stack, "batch.Place") {
				return true
			}
		}
		return false
	})
	c.all = append(c.all, a)
	return a
}

var labels atomic.Int64

func (c *caller) reset(key string) *answer {
	c.t.Helper()
	return c.enqueue("Reset", func(ctx context.Context) (*permits.Any, error) { return nil, c.lim.Reset(ctx, key) })
}

// gather lets the calls in flight finish, and returns when the batch has reached the gate.
func (c *caller) gather() {
	c.t.Helper()
	c.gate.Release(c.t, len(c.busy))
	for _, a := range c.busy {
		a.await(c.t)
	}
	c.gate.Await(c.t, 1)
}

// send opens the gate, and waits for the answers of all calls.
func (c *caller) send() []*answer {
	c.t.Helper()
	c.gate.Open()
	for _, a := range c.busy {
		if a.await(c.t); a.err != nil {
			c.t.Errorf("a Peek before the batch: got error %v, want nil", a.err)
		}
	}
	for _, a := range c.all {
		a.await(c.t)
	}
	return c.all
}

// wantAll checks that every call succeeded and that every decision was admitted by Redis.
func (c *caller) wantAll() {
	c.t.Helper()
	for i, a := range c.all {
		if a.err != nil || a.LimiterName != "" && (!a.Allowed || a.Source != core.SourceRedis) {
			c.t.Errorf("call %d: got %+v, %v; want success, and a decision admitted by Redis", i, a.Result, a.err)
		}
	}
}

// occupy holds as many Peeks at the gate, for each node, as make later requests wait for a batch. It starts each Peek after
// the one before has reached the gate. Otherwise two could go together, because a call that has returned may still count as
// in flight.
func (s *backend) occupy(t testing.TB, lim *core.Limiter) []*answer {
	t.Helper()
	s.gate.Hold(t)
	var busy []*answer
	each := maxInFlight
	if _, onCluster := s.client.(*redis.ClusterClient); onCluster {
		each = maxInFlightOfNode
	}
	for _, key := range s.keys(t, each) {
		busy = append(busy, start(t.Context(), request{key: key, peek: true}.of(lim)))
		s.gate.Await(t, 1)
	}
	return busy
}

// keys returns n keys of each node.
func (s *backend) keys(t testing.TB, n int) []string {
	t.Helper()
	byNode := map[string]int{}
	var keys []string
	for i := 0; len(keys) < n*s.nodes; i++ {
		key := fmt.Sprint("busy", i)
		node := s.node(t, key)
		if byNode[node]++; byNode[node] <= n {
			keys = append(keys, key)
		}
	}
	return keys
}

// node returns the address of a key's node, or "" if the backend is not a Cluster.
func (s *backend) node(t testing.TB, key string) string {
	t.Helper()
	cluster, ok := s.client.(*redis.ClusterClient)
	if !ok {
		return ""
	}
	master, err := cluster.MasterForKey(t.Context(), key)
	check.Need(t, err)
	return master.Options().Addr
}

// batch makes all requests in this order, in one batch for each server.
func (s *backend) batch(t testing.TB, lim *core.Limiter, requests []request) []*answer {
	t.Helper()
	c := s.caller(t, lim)
	for _, q := range requests {
		c.request(q)
	}
	return c.send()
}

// awaitRedis waits until the library knows that Redis answers again.
func (s *backend) awaitRedis(t testing.TB, lim *core.Limiter) {
	t.Helper()
	for _, key := range s.keys(t, 1) {
		check.Eventually(t, "Redis decides again", func() bool {
			_, err := lim.Peek(t.Context(), key)
			return err == nil
		})
	}
}

// sent checks how many keys each script had since the gate was held: one for each of the calls that occupied it, and then
// the given numbers.
func (s *backend) sent(t testing.TB, batches ...int) {
	t.Helper()
	want := append(slices.Repeat([]int{1}, maxInFlight), batches...)
	if got, _ := s.gate.Sent(); !slices.Equal(got, want) {
		t.Errorf("scripts with %v keys were sent, want %v", got, want)
	}
}

// want checks that Redis made the decision, with this result and this number of units remaining.
func (a *answer) want(t testing.TB, what string, allowed bool, remaining int64) {
	t.Helper()
	a.await(t)
	if a.err != nil || a.Allowed != allowed || a.Remaining != remaining || a.Source != core.SourceRedis {
		t.Errorf("%s: got Allowed %v, Remaining %d by %v, %v; want %v, %d by Redis", what, a.Allowed, a.Remaining, a.Source, a.err, allowed, remaining)
	}
}

// wantEnded checks that a call returned the error of its context.
func (a *answer) wantEnded(t testing.TB, what string, want error) {
	t.Helper()
	if a.await(t); !errors.Is(a.err, want) || a.Allowed {
		t.Errorf("%s: got %+v, %v; want %v", what, a.Result, a.err, want)
	}
}

// wantUnavailable checks that a call failed because Redis could not answer.
func (a *answer) wantUnavailable(t testing.TB, what string) {
	t.Helper()
	if a.await(t); !errors.Is(a.err, core.ErrUnavailable) || a.Allowed {
		t.Errorf("%s: got %+v, %v; want ErrUnavailable", what, a.Result, a.err)
	}
}
