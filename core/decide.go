package core

import (
	"context"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/limits"
)

// Allow is [Limiter.AllowN] with a cost of 1.
func (l *Limiter) Allow(ctx context.Context, key string) (res Result, err error) {
	err = l.allow(ctx, call{key: key, n: 1, op: algorithm.OpCharge}, &res)
	return res, err
}

// AllowN decides whether something that costs n units may happen now for key, and charges them if
// so. A denial is a Result, not an error. A cost above the capacity is denied with a RetryAfter of
// [Never].
//
// Errors are [ErrInvalidCost] for a negative n, [ErrInvalidKey] for an empty key, the context's own
// error once it has ended, and with [FailClosed] [ErrUnavailable] when Redis could not answer.
// After ErrUnavailable and the context's error n may have been charged; for a context that had
// ended before, nothing is sent. A Limiter with [InFlight] refuses: use [Limiter.Acquire].
//
// Redis has the whole [Timeout] for a call, which says who may wait longer than ctx. Who leaves gets
// the context's error, while the call goes on: the outage policy never decides for him.
func (l *Limiter) AllowN(ctx context.Context, key string, n int64) (res Result, err error) {
	err = l.allow(ctx, call{key: key, n: n, op: algorithm.OpCharge}, &res)
	return res, err
}

// Peek returns the state of key, and charges nothing: Allowed, RetryAfter and Delay are what
// [Limiter.Allow] would return now, all else is as it is before that call. Errors are those of
// [Limiter.AllowN].
func (l *Limiter) Peek(ctx context.Context, key string) (res Result, err error) {
	err = l.allow(ctx, call{key: key, n: 1, op: algorithm.OpEvaluate}, &res)
	return res, err
}

// Reset forgets what was charged to key: its full limit is available again, but for what is held by
// [Limiter.Reserve] and the slots of [InFlight], of which it frees none. A key that was never
// charged is no error, so pass the whole key: that of a middleware has a kind, as in "user:alice",
// and functions such as keyfunc.ForUser make it. Errors are those of [Limiter.AllowN]; while Redis
// does not answer, only what this process knows is forgotten.
func (l *Limiter) Reset(ctx context.Context, key string) error {
	return l.change(ctx, key, func(k keeper, by *limits.Set) error { return k.Reset(ctx, by, key) })
}

// allow makes a plain decision.
func (l *Limiter) allow(ctx context.Context, c call, res *Result) error {
	if err := c.check(ctx); err != nil {
		return err
	}
	if l.by.Slots && c.op == algorithm.OpCharge {
		return errNeedsEnd
	}
	return l.decide(ctx, c, target{Result: res})
}

// decide decides on c, charges or holds its units if they are admitted, and emits the event.
func (l *Limiter) decide(ctx context.Context, c call, to target) error {
	if len(l.family.events.observers) == 0 || c.op == algorithm.OpEvaluate {
		return l.decideUnobserved(ctx, c, to)
	}
	start := time.Now()
	err := l.decideUnobserved(ctx, c, to)
	if c.waits && err == nil && !to.Allowed {
		return nil // it is asked again
	}
	l.family.events.emit(ctx, c.key, Event{Kind: EventDecision, Result: *to.Result, Cost: c.n, Took: time.Since(start), Err: err})
	return err
}

// decideUnobserved decides in memory, from a lease or the deny cache, in Redis or by the outage
// policy.
func (l *Limiter) decideUnobserved(ctx context.Context, c call, to target) error {
	if l.family.stub != nil {
		return l.decideByStub(c, to)
	}
	if c.n == 0 {
		c.op = algorithm.OpEvaluate
	}
	switch {
	case l.family.memory != nil:
		l.catchUp()
		l.decideInMemory(ctx, l.family.memory, c, to)
		return nil
	case l.family.leases != nil && c.op != algorithm.OpEvaluate:
		return l.decideLeased(ctx, c, to)
	case l.repeatDenial(c, to):
		return nil
	}
	return l.ask(ctx, c, to, l.family.denials.Stamp(c.key, time.Time{}))
}

// change has a keeper change what is stored of key, and forgets what this process knows of that.
func (l *Limiter) change(ctx context.Context, key string, do func(k keeper, by *limits.Set) error) error {
	if err := (call{key: key}).check(ctx); err != nil {
		return err
	}
	l.catchUp()
	defer l.family.denials.Forget(key, l.by)
	defer l.family.lines.Forget(key)
	l.family.leases.Drop(key)
	if l.family.fallback != nil {
		_ = do(memoryKeeper{l.family.fallback}, l.by.Fallback) // memory never fails
	}
	return l.failure(ctx, do(l.keeper, l.by))
}
