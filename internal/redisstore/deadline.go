package redisstore

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redislimit/redislimit/internal/batch"
)

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

// endsBefore reports whether t ends before other. A nil timer never ends.
func (t *sharedTimer) endsBefore(other *sharedTimer) bool {
	return t != nil && t.deadline.Before(other.deadline)
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
