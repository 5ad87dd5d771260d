package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sony/gobreaker/v2"
)

const (
	// cooldown is how long Redis is left alone after it failed.
	cooldown = time.Second
	// tolerated is how many failures in a row are taken for a hiccup. A call that ran
	// into the timeout is no hiccup.
	tolerated = 2
)

// A protected store bounds how long Redis is waited for, and leaves it alone for a
// while once it has failed: an outage costs each process one timeout in each
// cooldown, not one for each request.
type protected struct {
	store

	timeout time.Duration
	direct  bool // the client itself ends a call with its context
	breaker *gobreaker.TwoStepCircuitBreaker[struct{}]
	events  *emitter
	policy  outagePolicy
	timed   atomic.Bool // the last failure was a timeout
	untold  atomic.Bool // there are changes

	mu      sync.Mutex
	changes []change // of the breaker, until its lock is free and they can be told
}

// A change of the breaker's state.
type change struct{ from, to gobreaker.State }

// errOpen is the error of a call that is not made, because the last ones failed.
var errOpen = errors.New("left alone for a while after it failed")

func protect(s store, client Client, c *config, events *emitter) *protected {
	p := &protected{store: s, timeout: c.timeout, direct: endsWithContext(client), events: events, policy: c.policy}
	p.breaker = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Name:    events.limiter,
		Timeout: cooldown,
		ReadyToTrip: func(counts gobreaker.Counts) bool {
			return counts.ConsecutiveFailures > tolerated || p.timed.Load()
		},
		IsExcluded: func(err error) bool { return errors.Is(err, errCallerLeft) },
		OnStateChange: func(_ string, from, to gobreaker.State) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.changes = append(p.changes, change{from, to})
			p.untold.Store(true)
		},
	})
	return p
}

// errCallerLeft marks the end of a caller's own context: that is no outage.
var errCallerLeft = errors.New("the caller left")

// endsWithContext tells whether the client heeds a context's deadline while it
// waits for a reply.
func endsWithContext(client Client) bool {
	switch c := client.(type) {
	case *redis.Client:
		return c.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		return c.Options().ContextTimeoutEnabled
	}
	return false
}

func (p *protected) read(ctx context.Context, key string, n int64, charge bool, into []reading) error {
	return p.call(ctx, func(ctx context.Context) error { return p.store.read(ctx, key, n, charge, into) })
}

func (p *protected) refund(ctx context.Context, key string, n int64, readings []reading) error {
	return p.call(ctx, func(ctx context.Context) error { return p.store.refund(ctx, key, n, readings) })
}

func (p *protected) reset(ctx context.Context, key string) error {
	return p.call(ctx, func(ctx context.Context) error { return p.store.reset(ctx, key) })
}

// call makes a call, if the breaker lets it.
func (p *protected) call(ctx context.Context, f func(context.Context) error) error {
	done, err := p.breaker.Allow()
	p.tell(ctx, nil)
	if err != nil {
		return errOpen
	}
	err = p.within(ctx, f)
	switch {
	case err == nil:
		done(nil)
	case left(ctx):
		done(errCallerLeft)
		err = ctx.Err()
	default:
		p.timed.Store(isTimeout(err))
		done(err)
		p.events.log(ctx, slog.LevelDebug, "redislimit: a call to redis failed", "error", err)
		p.events.emit(ctx, Event{Kind: EventOutage, Err: err})
	}
	p.tell(ctx, err)
	return err
}

// left tells whether the caller's context has ended. A connection that heeds its
// deadline may end a moment before the context itself does.
func left(ctx context.Context) bool {
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		<-ctx.Done()
	}
	return ctx.Err() != nil
}

// isTimeout tells whether err is that of a deadline, of a context or a connection.
func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.As(err, &timeout) && timeout.Timeout()
}

// within makes a call and waits for it no longer than the timeout. go-redis goes
// on waiting for a reply after its context has ended, unless ContextTimeoutEnabled
// is set: then the call is left behind. What is left behind waits for a reply, and
// so holds a connection of the client's pool; those that wait for one heed the
// context. There are never more of them than the pool has connections.
func (p *protected) within(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	if p.direct {
		return f(ctx)
	}
	answer := make(chan error, 1)
	go func() { answer <- f(ctx) }()
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return fmt.Errorf("no answer from redis within %v: %w", p.timeout, ctx.Err())
	}
}

// tell logs and emits what changed since it was told last.
func (p *protected) tell(ctx context.Context, cause error) {
	if !p.untold.Swap(false) {
		return
	}
	p.mu.Lock()
	changes := p.changes
	p.changes = nil
	p.mu.Unlock()
	for _, c := range changes {
		p.events.emit(ctx, Event{Kind: EventBreaker, Err: cause, Detail: c.to.String()})
		switch {
		case c.from == gobreaker.StateClosed:
			p.events.log(ctx, slog.LevelWarn, "redislimit: redis does not answer: "+p.policy.String()+" decides", "error", cause)
			p.events.emit(ctx, Event{Kind: EventFallbackOn, Err: cause, Detail: p.policy.String()})
		case c.to == gobreaker.StateClosed:
			p.events.log(ctx, slog.LevelInfo, "redislimit: redis answers again")
			p.events.emit(ctx, Event{Kind: EventFallbackOff})
		}
	}
}
