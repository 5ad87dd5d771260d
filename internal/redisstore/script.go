package redisstore

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/batch"
)

// A Client is what a [Store] needs of go-redis.
type Client interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// A script is a Lua script and how Redis is asked to run it: by the digest by which Redis knows it,
// or as a whole. All are arguments of a command.
type script struct {
	name, text any // "evalsha" and the digest, or "eval" and the source
	source     any
	undeclared bool // see algorithm.Form
}

func newScript(source string, undeclared bool) script {
	if sha := Digest(source); sha != "" {
		return script{"evalsha", sha, source, undeclared}
	}
	return script{"eval", source, source, undeclared}
}

// scriptArgs is how many of a script's arguments command fills in.
const scriptArgs = 3

// command returns the command that runs the script, if Redis has it, on as many keys as are given.
// The first scriptArgs of args are filled in.
func (s script) command(ctx context.Context, args []any, keys int) onceCmd {
	args[0], args[1], args[2] = s.name, s.text, keys
	if s.undeclared {
		args[2] = 0
		args = append(args, keys)
	}
	return s.newCommand(ctx, args)
}

// newCommand returns the command of these arguments. One with undeclared keys goes to the server
// that has the first of them. Unlike one with declared keys it is never redirected: after a
// redirect a server would also decide on keys of a slot that is moving to it, and have not come
// yet.
func (s script) newCommand(ctx context.Context, args []any) onceCmd {
	cmd := onceCmd{redis.NewIntSliceCmd(ctx, args...)}
	if s.undeclared {
		cmd.SetFirstKeyPos(scriptArgs)
	}
	return cmd
}

// run runs the script.
func (s script) run(ctx context.Context, client Client, args []any, keys int, loaded func(context.Context)) ([]int64, error) {
	cmd := s.command(ctx, args, keys)
	reply, err := s.reply(ctx, client, cmd, client.Process(ctx, cmd), loaded)
	return reply, unsent(err) // of a pipeline some commands may have been sent
}

// reply returns the reply to cmd, which was sent and returned err. EVAL follows only where Redis
// replied that it does not have the script, so that a decision is never run twice.
func (s script) reply(ctx context.Context, client Client, cmd onceCmd, err error, loaded func(context.Context)) ([]int64, error) {
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		if loaded != nil {
			loaded(ctx)
		}
		args := cmd.Args()
		args[0], args[1] = "eval", s.source
		cmd = s.newCommand(ctx, args)
		err = client.Process(ctx, cmd)
	}
	return cmd.Val(), err
}

// A onceCmd is sent once. go-redis repeats other commands when their reply is lost, and each
// repetition would charge again.
type onceCmd struct{ *redis.IntSliceCmd }

// NoRetry has go-redis not send the command again.
func (onceCmd) NoRetry() bool { return true }

// A deadlineContext is a caller's context that ends with a timer which many calls share, so that a
// timeout costs a call next to nothing. It does not end with the caller's: a call is not its
// caller.
type deadlineContext struct {
	context.Context //nolint:containedctx // it is one

	*sharedTimer
}

// A sharedTimer ends all calls that begin within a short time of each other.
type sharedTimer struct {
	since, deadline time.Time
	done            chan struct{}
}

// Deadline returns when the call has to end.
func (c deadlineContext) Deadline() (time.Time, bool) { return c.deadline, true }

// Done returns a channel that is closed then.
func (c deadlineContext) Done() <-chan struct{} { return c.done }

// Err returns nil until then.
func (c deadlineContext) Err() error {
	if isClosed(c.done) {
		return context.DeadlineExceeded
	}
	return nil
}

// deadlines makes contexts of calls that may all take as long.
type deadlines struct {
	timeout time.Duration
	current atomic.Pointer[sharedTimer]
	mu      sync.Mutex
}

// timer returns the timer of what begins now.
func (d *deadlines) timer() *sharedTimer { return d.at(time.Now()) }

// at returns the timer of what begins at an instant, which is now.
func (d *deadlines) at(now time.Time) *sharedTimer {
	t := d.current.Load()
	if t == nil || now.Sub(t.since) > d.timeout/64 {
		t = d.next(now)
	}
	return t
}

func (d *deadlines) next(now time.Time) *sharedTimer {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t := d.current.Load(); t != nil && now.Sub(t.since) <= d.timeout/64 {
		return t
	}
	t := &sharedTimer{since: now, deadline: now.Add(d.timeout), done: make(chan struct{})}
	time.AfterFunc(d.timeout, func() { close(t.done) })
	d.current.Store(t)
	return t
}

// call makes a call, for d at most.
func (s *Store) call(ctx context.Context, d time.Duration, f func(context.Context) error) error {
	bounded, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return s.callWithin(bounded, f)
}

// callWithin makes a call, until ctx ends at most.
func (s *Store) callWithin(ctx context.Context, f func(context.Context) error) error {
	if s.servers.ctxDeadlines {
		return f(ctx)
	}
	return batch.Beside(ctx, func() error { return f(ctx) }, nil)
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
