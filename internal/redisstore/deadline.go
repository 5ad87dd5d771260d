package redisstore

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/batch"
)

// A deadlineContext has the values of a caller's context, but ends with a timer instead. Many calls
// share a timer, so that a timeout costs a call almost nothing. A deadlineContext does not end with
// the caller's context, because a call may outlive its caller.
type deadlineContext struct {
	context.Context //nolint:containedctx // deadlineContext is a context itself

	*sharedTimer
}

// A sharedTimer ends the calls that begin within a short time of each other: within 1/64 of their
// timeout. It therefore ends a call up to 1/64 of the timeout early.
type sharedTimer struct {
	began, deadline time.Time     // began is when the first of the calls began
	done            chan struct{} // closed at the deadline
}

// endsBefore reports whether t ends before other. A nil timer never ends.
func (t *sharedTimer) endsBefore(other *sharedTimer) bool {
	return t != nil && t.deadline.Before(other.deadline)
}

// Deadline returns the time at which the call ends.
func (c deadlineContext) Deadline() (time.Time, bool) { return c.deadline, true }

// Done returns a channel that is closed at the deadline.
func (c deadlineContext) Done() <-chan struct{} { return c.done }

// Err returns nil until the deadline.
func (c deadlineContext) Err() error {
	if isClosed(c.done) {
		return context.DeadlineExceeded
	}
	return nil
}

// deadlines makes the timers of calls that have the same timeout.
type deadlines struct {
	timeout time.Duration
	current atomic.Pointer[sharedTimer]
	mu      sync.Mutex
}

// timer returns the timer of a call that begins now.
func (d *deadlines) timer() *sharedTimer { return d.at(time.Now()) }

// at is like timer, for a caller that has read the clock just now.
func (d *deadlines) at(now time.Time) *sharedTimer {
	t := d.current.Load()
	if t == nil || now.Sub(t.began) > d.timeout/64 {
		t = d.next(now)
	}
	return t
}

// next returns a new timer, unless another goroutine has just made one.
func (d *deadlines) next(now time.Time) *sharedTimer {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t := d.current.Load(); t != nil && now.Sub(t.began) <= d.timeout/64 {
		return t
	}
	t := &sharedTimer{began: now, deadline: now.Add(d.timeout), done: make(chan struct{})}
	time.AfterFunc(d.timeout, func() { close(t.done) })
	d.current.Store(t)
	return t
}

// bounded runs f, which makes calls to Redis, and waits for it for at most d. If the client ends calls at
// their deadlines, f runs in the goroutine of the caller. A panic of a hook of the client then reaches the
// caller, which should use batch.Catch. Otherwise f runs in a goroutine of its own, which continues after d,
// and a panic is returned as a [batch.HookError].
func (s *Store) bounded(ctx context.Context, d time.Duration, f func(context.Context) error) error {
	bounded, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	if s.servers.ctxDeadlines {
		return f(bounded)
	}
	return batch.Beside(bounded, func() error { return f(bounded) }, nil)
}

// process sends cmd, and waits for the reply for at most d. The reply may be read only if process returns nil.
// The command is sent in a goroutine of its own, because a hook of the client may panic, end the goroutine or
// ignore the context.
func (s *Store) process(ctx context.Context, d time.Duration, cmd redis.Cmder) error {
	bounded, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return batch.Beside(bounded, func() error { return s.servers.client.Process(bounded, cmd) }, nil)
}

// isClosed reports whether c is closed.
func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
