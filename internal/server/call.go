package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/batch"
)

// A Client is what a [Store] needs of go-redis.
type Client interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// A script is a Lua script and how Redis is asked to run it: by the digest by which Redis
// knows it, or as a whole. All are arguments of a command.
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

// command returns the command that runs the script, if Redis has it, on as many
// keys as are given. The first scriptArgs of args are filled in.
func (s script) command(ctx context.Context, args []any, keys int) onceCmd {
	args[0], args[1], args[2] = s.name, s.text, keys
	if s.undeclared {
		args[2] = 0
		args = append(args, keys)
	}
	return s.send(ctx, args)
}

// send returns the command of these arguments. One with undeclared keys goes to the server
// that has the first of them. No server redirects it, as it would do with declared keys: where
// a slot is being moved to, it would decide on keys of all such slots, also on those that
// have not come yet.
func (s script) send(ctx context.Context, args []any) onceCmd {
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

// reply returns the reply to cmd, which was sent and returned err. EVAL follows only
// where Redis replied that it does not have the script, so that a decision is never run
// twice.
func (s script) reply(ctx context.Context, client Client, cmd onceCmd, err error, loaded func(context.Context)) ([]int64, error) {
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		if loaded != nil {
			loaded(ctx)
		}
		args := cmd.Args()
		args[0], args[1] = "eval", s.source
		cmd = s.send(ctx, args)
		err = client.Process(ctx, cmd)
	}
	return cmd.Val(), err
}

// A onceCmd is sent once. go-redis repeats other commands when their reply is
// lost, and each repetition would charge again.
type onceCmd struct{ *redis.IntSliceCmd }

// NoRetry has go-redis not send the command again.
func (onceCmd) NoRetry() bool { return true }

// A deadlineContext is a caller's context that ends with a timer which many calls
// share, so that a timeout costs a call next to nothing. It does not end with the
// caller's: a call is not its caller.
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
	if ended(c.done) {
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

// The errors of calls that were not made.
var (
	// ErrBreakerOpen says that the server is down, and was not asked.
	ErrBreakerOpen = errors.New("circuit breaker open")
	// ErrQueue says that too many decisions wait in this process. That is not the
	// server's fault.
	ErrQueue = errors.New("too many decisions are waiting in this process")
)

// errNotUp is that of a decision that waits until its server is up, or known to be down.
var errNotUp error = unsentError{ErrBreakerOpen}

// errPanicked is that of a call whose caller is to recover.
var errPanicked = errors.New("a hook of the client panicked")

// call makes a call, for d at most.
func (s *Store) call(ctx context.Context, d time.Duration, f func(context.Context) error) error {
	bounded, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	if s.servers.ctxDeadlines {
		return f(bounded)
	}
	return batch.Beside(bounded, func() error { return f(bounded) }, nil)
}

// callTime returns how long a call to sv may take.
func (s *Store) callTime(sv *Server) time.Duration {
	if sv.far.Load() {
		return s.farDeadlines.timeout
	}
	return s.Timeout
}

// outcome returns what the error of a call says about sv, which was given so long, and the error
// to show.
func (s *Store) outcome(sv *Server, err error, given time.Duration, begun time.Time) (outcome, error) {
	var reply redis.Error
	switch {
	case isTimeout(err):
		late := time.Since(begun) > given+max(given/4, 50*time.Millisecond) || processBusy()
		if err = s.timeoutError(err, given); late || sv.far.Load() {
			return unsure, err
		}
		return silent, err
	case errors.Is(err, ErrUnsupported), decidesNothing(err):
		return unable, err
	case replies(err, faults):
		return replied, fmt.Errorf("%w: %w", algorithm.ErrReply, err)
	case errors.As(err, &reply), errors.Is(err, algorithm.ErrPartly), errors.Is(err, algorithm.ErrReply):
		return replied, err
	case errors.Is(err, redis.ErrPoolExhausted):
		return unclear, err
	case isBroken(err):
		return broken, err
	}
	return unable, err
}

// isBroken reports whether err is of a connection that was made once.
func isBroken(err error) bool {
	var op *net.OpError
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.As(err, &op) && (op.Op == "read" || op.Op == "write")
}

// An unsentError is that of a command that the server did not get.
type unsentError struct{ error }

func (e unsentError) Unwrap() error { return e.error }

func isUnsent(err error) bool { return err != nil && errors.As(err, new(unsentError)) }

// unsent marks the error of a single command of which not all could be sent.
func unsent(err error) error {
	if err == nil {
		return nil
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "write" {
		return unsentError{err}
	}
	return err
}

// processBusy reports whether goroutines wait long for a processor: the reply of a
// server may then be there, and nobody has seen it.
func processBusy() bool { return schedulingDelay() > busyDelay }

const busyDelay = time.Millisecond

// schedulingDelay returns how long a goroutine that can run waits for a processor.
func schedulingDelay() time.Duration {
	longest := time.Duration(0)
	for range 4 {
		begun := time.Now()
		runtime.Gosched() // goes behind all goroutines that can run
		if longest = max(longest, time.Since(begun)); longest > busyDelay {
			break // a caller may be waiting
		}
	}
	return longest
}

// isTimeout reports whether err is of a deadline, of a context or a connection.
func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.As(err, &timeout) && timeout.Timeout()
}

// isDial reports whether no connection could be made.
func isDial(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

func hasCode(err error, codes ...string) bool {
	for _, code := range codes {
		if redis.HasErrorPrefix(err, code) {
			return true
		}
	}
	return false
}

// timeoutError says for how long the server was waited for, and whether it was the
// client's pool that was waited for instead.
func (s *Store) timeoutError(err error, given time.Duration) error {
	pool := ""
	if c, ok := s.servers.client.(*redis.Client); ok {
		stats, size := c.PoolStats(), c.Options().PoolSize
		if errors.Is(err, redis.ErrPoolTimeout) || stats.IdleConns == 0 && int(stats.TotalConns) >= size {
			pool = fmt.Sprintf(" (all %d connections of the client's pool are in use)", size)
		}
	}
	return fmt.Errorf("no answer from redis within %v%s: %w", given.Round(time.Microsecond), pool, context.DeadlineExceeded)
}

// failed records that a call for d failed that was begun at an instant, and returns its error for the
// caller. ctx gives the hooks its values.
func (s *Store) failed(ctx context.Context, sv *Server, d *Decision, err error, begun time.Time) error {
	err = s.explain(ctx, err)
	o, err := s.outcome(sv, err, s.Timeout, begun)
	if reply := redis.Error(nil); d.Op > algorithm.OpReserve && errors.As(err, &reply) {
		o = replied // a server that decides may refuse what ends a hold
	}
	sv.ended(s, d.Key, o, begun, err)
	if s.Hooks.CallFailed != nil && (!moving(err) || s.servers.stuck(time.Now())) {
		s.Hooks.CallFailed(context.WithoutCancel(ctx), err, o == replied || o == unclear)
	}
	return err
}

// moving reports whether err is of a hash slot that is being moved, or that no node has.
func moving(err error) bool { return hasCode(err, "TRYAGAIN", "CLUSTERDOWN Hash slot not served") }

// stuck takes an error of a hash slot that is being moved. It reports whether there have been such errors for too long.
func (s *Servers) stuck(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.movingLast) > logPause {
		s.movingSince = now
	}
	s.movingLast = now
	return now.Sub(s.movingSince) >= doubtLasts
}
