package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

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
	*redisStore

	lanes   *lanes
	timeout time.Duration
	budgets budgets
	direct  bool // the client itself ends a call with its context
	breaker *gobreaker.TwoStepCircuitBreaker[struct{}]
	broken  atomic.Bool // the breaker is not closed
	stumble atomic.Bool // the last call that was reported failed
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

func protect(s *redisStore, client Client, c *config, events *emitter) *protected {
	p := &protected{redisStore: s, timeout: c.timeout, events: events, policy: c.policy}
	p.budgets.timeout = c.timeout
	p.direct = heeds(client)
	p.lanes = newLanes(s, client, c.together, p.fly)
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
			p.broken.Store(to != gobreaker.StateClosed)
			p.changes = append(p.changes, change{from, to})
			p.untold.Store(true)
		},
	})
	return p
}

// errCallerLeft marks the end of a caller's own context: that is no outage.
var errCallerLeft = errors.New("the caller left")

// read decides alone, or together with others. While Redis fails nobody waits for
// anybody: the breaker answers each.
func (p *protected) read(ctx context.Context, key string, n int64, charge bool, into []reading) error {
	if p.broken.Load() {
		return p.readAlone(ctx, key, n, charge, into)
	}
	l := p.lanes.of(ctx, key, n)
	if l == nil {
		err := p.readAlone(ctx, key, n, charge, into)
		if err == nil {
			p.lanes.meet()
		}
		return err
	}
	b, place := l.enter(ctx, decision{key: key, n: n, charge: charge, into: into})
	if b == nil {
		defer l.leave()
		return p.readAlone(ctx, key, n, charge, into)
	}
	err := l.wait(ctx, b, place)
	if errors.Is(err, errAlone) {
		return p.readWithin(ctx, p.timeout-time.Since(b.since), key, n, charge, into)
	}
	return err
}

// readAlone is read for one caller. While all is well it does no more than that:
// the breaker need not know.
func (p *protected) readAlone(ctx context.Context, key string, n int64, charge bool, into []reading) error {
	if !p.direct || p.broken.Load() {
		return p.readWithin(ctx, p.timeout, key, n, charge, into)
	}
	err := p.redisStore.read(p.budgets.of(ctx), key, n, charge, into)
	if err != nil || p.stumble.Load() {
		err = p.report(ctx, err)
	}
	return err
}

func (p *protected) readWithin(ctx context.Context, d time.Duration, key string, n int64, charge bool, into []reading) error {
	return p.call(ctx, d, func(ctx context.Context) error { return p.redisStore.read(ctx, key, n, charge, into) })
}

// fly asks for decisions of which the first came at an instant.
func (p *protected) fly(ctx context.Context, since time.Time, ds []*decision) error {
	err := p.call(ctx, p.timeout-time.Since(since), func(ctx context.Context) error {
		if p.lanes.cluster != nil {
			return p.readEach(ctx, p.lanes.cluster, ds)
		}
		return p.readTogether(ctx, ds)
	})
	if err != nil {
		return err
	}
	for _, d := range ds {
		if d.err != nil && !errors.Is(d.err, errAlone) {
			d.err = p.report(ctx, d.err)
		}
	}
	return nil
}

func (p *protected) refund(ctx context.Context, key string, n int64, readings []reading) error {
	return p.call(ctx, p.timeout, func(ctx context.Context) error { return p.redisStore.refund(ctx, key, n, readings) })
}

func (p *protected) reset(ctx context.Context, key string) error {
	return p.call(ctx, p.timeout, func(ctx context.Context) error { return p.redisStore.reset(ctx, key) })
}

// call makes a call, if the breaker lets it, and waits for it no longer than d.
func (p *protected) call(ctx context.Context, d time.Duration, f func(context.Context) error) error {
	done, err := p.breaker.Allow()
	p.tell(ctx, nil)
	if err != nil {
		return errOpen
	}
	returned := false
	defer func() {
		if !returned { // it panics; a breaker that is half-open would wait for this call for ever
			done(errCallerLeft)
		}
	}()
	err = p.within(ctx, d, f)
	returned = true
	return p.settle(ctx, err, done)
}

// report tells the breaker of a call that it was not asked about.
func (p *protected) report(ctx context.Context, err error) error {
	done, open := p.breaker.Allow()
	if open != nil {
		done = func(error) {} // it has opened meanwhile
	}
	return p.settle(ctx, err, done)
}

// settle says how a call went, and what its error is to the caller.
func (p *protected) settle(ctx context.Context, err error, done func(error)) error {
	switch {
	case err == nil:
		p.stumble.Store(false)
		done(nil)
	case left(ctx):
		done(errCallerLeft)
		err = ctx.Err()
	default:
		p.stumble.Store(true)
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

// within makes a call and waits for it no longer than d. A client that goes on
// waiting for a reply after its context has ended is left behind. What is left
// behind waits for a reply, and so holds a connection of the client's pool; those
// that wait for one heed the context. There are never more of them than the pool
// has connections.
func (p *protected) within(ctx context.Context, d time.Duration, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	if p.direct {
		return f(ctx)
	}
	answer := make(chan error, 1)
	go func() { answer <- caught(func() error { return f(ctx) }) }()
	select {
	case err := <-answer:
		return passedOn(err)
	case <-ctx.Done():
		return fmt.Errorf("no answer from redis within %v: %w", d, ctx.Err())
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
