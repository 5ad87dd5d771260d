package coalesce

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
)

// width is how many flights are under way before anybody waits: so many
// decisions, held at the gate, have the others come together behind them.
const width = 4

// patience is how long a test waits for what must come.
const patience = 20 * time.Second

// A gate is a hook before one client that counts the scripts, and can hold them.
type gate struct {
	mu     sync.Mutex
	sent   []int         // how many keys each command or pipeline had
	evals  int           // how many of them carried the source
	passes chan struct{} // nil: it is open; else each needs one
	came   chan struct{} // has one for each that is held
}

// DialHook changes nothing.
func (g *gate) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook counts and holds a script.
func (g *gate) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "evalsha" || cmd.Name() == "eval" {
			g.pass(cmd)
		}
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook counts and holds a pipeline of scripts.
func (g *gate) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds[0].Name() == "evalsha" {
			g.pass(cmds...)
		}
		return next(ctx, cmds)
	}
}

func (g *gate) pass(cmds ...redis.Cmder) {
	keys := 0
	for _, cmd := range cmds {
		n, _ := cmd.Args()[2].(int)
		keys += n
	}
	g.mu.Lock()
	g.sent = append(g.sent, keys)
	if cmds[0].Name() == "eval" {
		g.evals++
	}
	passes, came := g.passes, g.came
	g.mu.Unlock()
	if passes != nil {
		came <- struct{}{}
		<-passes
	}
}

// shut has what comes from now on wait, and forgets what was counted.
func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.passes, g.came = make(chan struct{}), make(chan struct{}, 1000)
	g.sent, g.evals = nil, 0
}

// open lets everybody pass.
func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.passes != nil {
		close(g.passes)
		g.passes = nil
	}
}

// holds waits until n more are held.
func (g *gate) holds(t *testing.T, n int) {
	t.Helper()
	for range n {
		select {
		case <-g.came:
		case <-time.After(patience):
			t.Fatal("what should be sent is not")
		}
	}
}

// let lets n pass, of those that came first or another.
func (g *gate) let(t *testing.T, n int) {
	t.Helper()
	for range n {
		select {
		case g.passes <- struct{}{}:
		case <-time.After(patience):
			t.Fatal("nobody is held")
		}
	}
}

// counted returns how many keys each script had since the gate was shut, and how many scripts carried their source.
func (g *gate) counted() (sent []int, evals int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]int(nil), g.sent...), g.evals
}

// A site is a store before which a gate stands.
type site struct {
	client  redis.UniversalClient
	gate    *gate
	advance func(time.Duration) // the clock
	nodes   int                 // how many servers it has
}

func (s *site) limiter(t *testing.T, name string, options ...core.Option) *core.Limiter {
	t.Helper()
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

// exactly are the options by which Redis alone decides.
var exactly = []core.Option{core.DenyCache(0), core.FailClosed(), core.Timeout(time.Minute)}

// An ask is one decision that a test wants.
type ask struct {
	key  string
	n    int64
	peek bool
}

func (a ask) of(ctx context.Context, lim *core.Limiter) (core.Result, error) {
	if a.peek {
		return lim.Peek(ctx, a.key)
	}
	return lim.AllowN(ctx, a.key, a.n)
}

// A told is what a caller was told.
type told struct {
	core.Result

	err  error
	done chan struct{} // closed then
}

func (o *told) await(t *testing.T) *told {
	t.Helper()
	select {
	case <-o.done:
	case <-time.After(patience):
		t.Fatal("a caller waits for ever")
	}
	return o
}

// A seen context tells when its caller waits for it to end.
type seen struct {
	context.Context

	once    sync.Once
	waiting chan struct{}
}

func (s *seen) Done() <-chan struct{} {
	s.once.Do(func() { close(s.waiting) })
	return s.Context.Done()
}

// start has a caller ask, and does not wait for it.
func start(ctx context.Context, lim *core.Limiter, a ask) *told {
	o := &told{done: make(chan struct{})}
	go func() {
		defer close(o.done)
		o.Result, o.err = a.of(ctx, lim)
	}()
	return o
}

// queue has a caller ask, and returns once they stand in line.
func queue(ctx context.Context, t *testing.T, lim *core.Limiter, a ask) *told {
	t.Helper()
	s := &seen{Context: ctx, waiting: make(chan struct{})}
	o := start(s, lim, a)
	select {
	case <-s.waiting:
	case <-time.After(patience):
		t.Fatalf("%+v does not wait", a)
	}
	return o
}

// plug shuts the gate and has as many held there, on each node, as make the others wait. They only look. One comes
// after the other: a flight that has answered may not have landed yet, and would take two of them along together.
func (s *site) plug(t *testing.T, lim *core.Limiter) []*told {
	t.Helper()
	s.gate.shut()
	t.Cleanup(s.gate.open) // a test that fails is not to hold those after it
	var plugs []*told
	for _, key := range s.keys(t, width) {
		plugs = append(plugs, start(t.Context(), lim, ask{key: key, peek: true}))
		s.gate.holds(t, 1)
	}
	return plugs
}

// keys returns n keys of each node.
func (s *site) keys(t *testing.T, n int) []string {
	t.Helper()
	cluster, ok := s.client.(*redis.ClusterClient)
	byNode := map[string]int{}
	var keys []string
	for i := 0; len(keys) < n*s.nodes; i++ {
		key, node := fmt.Sprint("plug", i), ""
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

// together has all asked in this order, in one flight to each server.
func (s *site) together(t *testing.T, lim *core.Limiter, asks []ask) []*told {
	t.Helper()
	plugs := s.plug(t, lim)
	all := make([]*told, len(asks))
	for i, a := range asks {
		all[i] = queue(t.Context(), t, lim, a)
	}
	s.gate.open()
	for _, o := range append(plugs, all...) {
		o.await(t)
	}
	for _, o := range plugs {
		if o.err != nil {
			t.Errorf("a plug: %v", o.err)
		}
	}
	return all
}

// want checks a decision of Redis's that left so much.
func (o *told) want(t *testing.T, what string, allowed bool, remaining int64) {
	t.Helper()
	o.await(t)
	if o.err != nil || o.Allowed != allowed || o.Remaining != remaining || o.Source != core.SourceRedis {
		t.Errorf("%s: allowed %v, remaining %d of %v, %v; want %v, %d", what, o.Allowed, o.Remaining, o.Source, o.err, allowed, remaining)
	}
}

// gone checks that a caller was told the error of its context.
func (o *told) gone(t *testing.T, what string, want error) {
	t.Helper()
	if o.await(t); !errors.Is(o.err, want) || o.Allowed {
		t.Errorf("%s: %+v, %v; want %v", what, o.Result, o.err, want)
	}
}

func isUnavailable(err error) bool { return errors.Is(err, core.ErrUnavailable) }
