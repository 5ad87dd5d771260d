// Package gate is a go-redis hook that counts the scripts of a client, and can hold them before they are sent or after they
// were answered. So a test decides which scripts are in flight at the same time.
package gate

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/testkit/check"
)

// A Gate is a hook of one client. The zero Gate is open. It is safe for concurrent use.
type Gate struct {
	mu         sync.Mutex
	sent       []int           // how many keys each command or pipeline had
	evals      int             // how many of them contained the source of a script
	undeclared int             // how many scripts had keys that they did not declare
	arrived    chan struct{}   // nil: the gate is open; otherwise it receives a value for each script that is held
	replies    bool            // the gate holds replies instead of scripts
	held       []chan struct{} // one for each held script, in order of arrival; closing it releases the script
}

// crowd is how many scripts may be held before a test has called Await for the first.
const crowd = 1000

// An Around is a hook of a client that runs code around each command and each pipeline.
type Around func(cmds []redis.Cmder, send func() error) error

// DialHook changes nothing.
func (a Around) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook calls a around a command.
func (a Around) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return a([]redis.Cmder{cmd}, func() error { return next(ctx, cmd) })
	}
}

// ProcessPipelineHook calls a around a pipeline.
func (a Around) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return a(cmds, func() error { return next(ctx, cmds) })
	}
}

// Count makes client count its commands and pipelines, before its later hooks see them.
func Count(client redis.UniversalClient) (sent func() int64) {
	var n atomic.Int64
	client.AddHook(Around(func(_ []redis.Cmder, send func() error) error {
		n.Add(1)
		return send()
	}))
	return n.Load
}

// DialHook changes nothing.
func (g *Gate) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook counts and holds a script.
func (g *Gate) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return Around(g.pass).ProcessHook(next)
}

// ProcessPipelineHook counts and holds a pipeline of scripts.
func (g *Gate) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return Around(g.pass).ProcessPipelineHook(next)
}

func (g *Gate) pass(cmds []redis.Cmder, send func() error) error {
	if name := cmds[0].Name(); name != "evalsha" && name != "eval" {
		return send()
	}
	keys, undeclared := 0, 0
	for _, cmd := range cmds {
		args := cmd.Args()
		n, _ := args[2].(int)
		if n == 0 { // the last argument is the number of keys
			n, _ = args[len(args)-1].(int)
			undeclared++
		}
		keys += n
	}
	g.mu.Lock()
	g.sent = append(g.sent, keys)
	g.undeclared += undeclared
	if cmds[0].Name() == "eval" {
		g.evals++
	}
	shut, replies := g.arrived != nil, g.replies
	g.mu.Unlock()
	if shut && replies {
		defer g.wait()
	} else if shut {
		g.wait()
	}
	return send()
}

// wait holds the calling goroutine, unless the gate has been opened.
func (g *Gate) wait() {
	g.mu.Lock()
	if g.arrived == nil {
		g.mu.Unlock()
		return
	}
	pass := make(chan struct{})
	g.held = append(g.held, pass)
	g.arrived <- struct{}{}
	g.mu.Unlock()
	<-pass
}

// Hold makes each script wait from now on before it is sent, and resets the counts. When the test of tb ends, the gate
// opens, so that a test that fails does not hold later tests.
func (g *Gate) Hold(tb testing.TB) { g.hold(tb, false) }

// HoldReplies is like [Gate.Hold], but holds the reply to each script.
func (g *Gate) HoldReplies(tb testing.TB) { g.hold(tb, true) }

func (g *Gate) hold(tb testing.TB, replies bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.arrived = make(chan struct{}, crowd)
	g.sent, g.evals, g.undeclared, g.replies = nil, 0, 0, replies
	tb.Cleanup(g.Open)
}

// Open releases all scripts, and holds no more.
func (g *Gate) Open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, pass := range g.held {
		close(pass)
	}
	g.arrived, g.held = nil, nil
}

// Await waits until n more scripts are held.
func (g *Gate) Await(tb testing.TB, n int) {
	tb.Helper()
	g.mu.Lock()
	arrived := g.arrived
	g.mu.Unlock()
	for range n {
		check.Receive(tb, "a script arrives at the gate", arrived)
	}
}

// Release releases the n scripts that have been held longest.
func (g *Gate) Release(tb testing.TB, n int) {
	tb.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.held) < n {
		tb.Fatalf("%d scripts are held, want at least the %d to release", len(g.held), n)
	}
	for _, pass := range g.held[:n] {
		close(pass)
	}
	g.held = g.held[n:]
}

// ReleaseLast releases the script that arrived last.
func (g *Gate) ReleaseLast(tb testing.TB) {
	tb.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	last := len(g.held) - 1
	if last < 0 {
		tb.Fatal("no script is held, want one to release")
	}
	close(g.held[last])
	g.held = g.held[:last]
}

// Sent returns how many keys each script had since the last Hold, and how many scripts contained their source.
func (g *Gate) Sent() (keys []int, evals int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.sent), g.evals
}

// Undeclared returns how many scripts since the last Hold had keys that they did not declare: scripts for a Cluster that
// have the keys of several decisions.
func (g *Gate) Undeclared() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.undeclared
}
