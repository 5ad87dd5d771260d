package core

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// A budget is a context that ends with the time a call may take, or with the
// caller's deadline if that comes first. Calls that begin within a moment share
// one timer, so that a budget costs a call next to nothing; it is up to 1/64 of
// the timeout shorter by that. A caller who leaves before is noticed when the call
// returns.
type budget struct {
	context.Context //nolint:containedctx // it is one

	*period
}

// A period is the timer that several budgets share.
type period struct {
	since, deadline time.Time
	done            chan struct{}
}

// Deadline returns when the budget is spent.
func (b budget) Deadline() (time.Time, bool) { return b.deadline, true }

// Done returns a channel that is closed then.
func (b budget) Done() <-chan struct{} { return b.done }

// Err returns nil until then.
func (b budget) Err() error {
	select {
	case <-b.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// budgets hands out budgets of one length.
type budgets struct {
	timeout time.Duration
	current atomic.Pointer[period]
	mu      sync.Mutex
}

// of returns the budget of a call that begins now. Where the caller's deadline
// comes first its own context will do.
func (b *budgets) of(ctx context.Context) context.Context {
	now := time.Now()
	p := b.current.Load()
	if p == nil || now.Sub(p.since) > b.timeout/64 {
		p = b.next(now)
	}
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(p.deadline) {
		return ctx
	}
	return budget{ctx, p}
}

func (b *budgets) next(now time.Time) *period {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.current.Load(); p != nil && now.Sub(p.since) <= b.timeout/64 {
		return p
	}
	p := &period{since: now, deadline: now.Add(b.timeout), done: make(chan struct{})}
	time.AfterFunc(b.timeout, func() { close(p.done) })
	b.current.Store(p)
	return p
}
