package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sony/gobreaker/v2"

	"github.com/redislimit/redislimit/internal/batch"
)

const (
	// cooldown is for how long the breaker stays open.
	cooldown = time.Second
	// tolerated is how many failures in a row do not open it. A timeout opens it at once.
	tolerated = 2
)

// ErrBreakerOpen is the error of a call that is not made, because the last ones
// failed.
var ErrBreakerOpen = errors.New("circuit breaker open")

// errCallerDone is what the breaker is told of a call that ended with its caller's
// context: that is no failure of Redis.
var errCallerDone = errors.New("the caller's context has ended")

// A BreakerState is one of closed (all is well), open (Redis is not asked) and
// half-open (one call tries whether Redis answers again).
type BreakerState = gobreaker.State

// BreakerClosed is the state in which Redis is asked.
const BreakerClosed = gobreaker.StateClosed

// A breaker bounds for how long Redis is waited for, and has it not asked for a
// while after calls have failed: an outage costs one timeout in each cooldown, and
// not one for each request.
type breaker struct {
	timeout      time.Duration
	deadlines    deadlines
	ctxDeadlines bool // the client itself ends a call with its context
	circuit      *gobreaker.TwoStepCircuitBreaker[struct{}]
	client       Client
	hooks        Hooks

	notClosed    atomic.Bool
	lastFailed   atomic.Bool // of the calls that were recorded
	lastTimedOut atomic.Bool

	// The circuit calls back while it is locked; the hooks are called after that.
	hasPending atomic.Bool
	mu         sync.Mutex
	pending    []transition
}

type transition struct{ from, to BreakerState }

func newBreaker(client Client, c Config) *breaker {
	b := &breaker{timeout: c.Timeout, client: client, hooks: c.Hooks, ctxDeadlines: honorsContextDeadline(client)}
	b.deadlines.timeout = c.Timeout
	b.circuit = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Name:    c.Limiter,
		Timeout: cooldown,
		ReadyToTrip: func(counts gobreaker.Counts) bool {
			return counts.ConsecutiveFailures > tolerated || b.lastTimedOut.Load()
		},
		IsExcluded: func(err error) bool { return errors.Is(err, errCallerDone) },
		OnStateChange: func(_ string, from, to gobreaker.State) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.notClosed.Store(to != gobreaker.StateClosed)
			b.pending = append(b.pending, transition{from, to})
			b.hasPending.Store(true)
		},
	})
	return b
}

// honorsContextDeadline reports whether the client ends a call with its context's
// deadline: go-redis does so only where ContextTimeoutEnabled is set. A clone of the
// client by WithTimeout with that option set is no way out: in go-redis 9.22 it has
// none of the client's hooks, such as those for tracing.
func honorsContextDeadline(client Client) bool {
	switch c := client.(type) {
	case *redis.Client:
		return c.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		return c.Options().ContextTimeoutEnabled
	}
	return false
}

func (b *breaker) closed() bool { return !b.notClosed.Load() }

// bareCallAllowed reports whether a call may be made without the breaker, with a
// context of deadlines. Its end is then recorded with recordBareCall.
func (b *breaker) bareCallAllowed() bool { return b.ctxDeadlines && b.closed() }

// recordBareCall records the end of a call, and returns its error for the caller.
// The breaker's lock is not needed for a success that follows another.
func (b *breaker) recordBareCall(ctx context.Context, err error) error {
	if err == nil && !b.lastFailed.Load() {
		return nil
	}
	return b.record(ctx, err)
}

// call makes a call, if the breaker lets it, and waits for it no longer than d.
func (b *breaker) call(ctx context.Context, d time.Duration, f func(context.Context) error) error {
	done, err := b.circuit.Allow()
	b.notify(ctx, nil)
	if err != nil {
		return ErrBreakerOpen
	}
	returned := false
	defer func() {
		if !returned { // it panics; a half-open breaker would wait for its end for ever
			done(errCallerDone)
		}
	}()
	err = b.within(ctx, d, f)
	returned = true
	return b.finish(ctx, err, done)
}

// record records the end of a call that was made without the breaker.
func (b *breaker) record(ctx context.Context, err error) error {
	done, refused := b.circuit.Allow()
	if refused != nil {
		done = func(error) {} // it has opened meanwhile
	}
	return b.finish(ctx, err, done)
}

// finish records how a call ended, and returns its error for the caller.
func (b *breaker) finish(ctx context.Context, err error, done func(error)) error {
	switch {
	case err == nil:
		b.lastFailed.Store(false)
		done(nil)
	case callerDone(ctx):
		done(errCallerDone)
		err = ctx.Err()
	default:
		err = b.explain(ctx, err)
		b.lastFailed.Store(true)
		b.lastTimedOut.Store(isTimeout(err))
		done(err)
		b.hooks.CallFailed(ctx, err)
	}
	b.notify(ctx, err)
	return err
}

// callerDone reports whether the caller's context has ended. A connection that
// honors its deadline may end a moment before the context itself does.
func callerDone(ctx context.Context) bool {
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		<-ctx.Done()
	}
	return ctx.Err() != nil
}

// isTimeout reports whether err is of a deadline, of a context or a connection.
func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.As(err, &timeout) && timeout.Timeout()
}

// within makes a call and waits for it no longer than d. A client that goes on
// waiting for a reply after its context has ended is abandoned: its goroutine holds
// a connection of the client's pool until the read timeout, so that there are at
// most as many of them as the pool has connections.
func (b *breaker) within(ctx context.Context, d time.Duration, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	if b.ctxDeadlines {
		return f(ctx)
	}
	reply := make(chan error, 1)
	go func() { reply <- batch.Catch(func() error { return f(ctx) }) }()
	select {
	case err := <-reply:
		return batch.Rethrow(err)
	case <-ctx.Done():
		return fmt.Errorf("no answer from redis within %v: %w", d, ctx.Err())
	}
}

// notify calls the hook for the transitions since it was last called.
func (b *breaker) notify(ctx context.Context, cause error) {
	if !b.hasPending.Swap(false) {
		return
	}
	b.mu.Lock()
	pending := b.pending
	b.pending = nil
	b.mu.Unlock()
	for _, t := range pending {
		b.hooks.BreakerChange(ctx, t.from, t.to, cause)
	}
}
