// Package core decides whether a request may pass. A [Limiter] holds one or more
// limits for every key, across all processes that share a Redis: each decision is
// one atomic Lua script, run by the Redis server's clock.
//
//	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
//	lim := core.MustNew(rdb, "api", core.TokenBucket(core.PerMinute(100)))
//	res, err := lim.Allow(ctx, "user:alice")
//
// [NewMemory] makes a Limiter of the same algorithms that lives in one process.
//
// The package knows nothing of HTTP; the adapters in nethttp and its siblings do.
package core

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A Limiter controls how often things may happen, for each key on its own. Its
// limits hold across all processes that use the same Redis, the same prefix and
// the same name; Limiters of different names share nothing.
//
// Whatever a key may be, it stands in Redis as prefix:name:{key}:limit, shortened
// to a digest where it is longer than 64 bytes or not plain ASCII. Every Redis
// key has a TTL.
//
// A cost of 0 is always allowed and charges nothing; a denied request changes
// nothing. A Limiter is safe for concurrent use.
type Limiter struct {
	name     string
	limits   []Limit
	names    []string // of the limits
	deciders []decider
	store    store
	fallback *fallback // while the store does not answer; nil in memory
	denials  *denyCache
	events   *emitter
	lines    lines
}

// New returns the Limiter called name over client. Limiters of one name share
// their budgets, in whatever process they are; the name also stands in headers,
// events and metrics. It has 1 to 64 letters, digits and "_.-".
//
// The options are one or more limits, such as [TokenBucket] or [FixedWindow],
// and settings, such as [Prefix]. Of several limits all must admit a
// request, or none is charged. Any mistake in the configuration is an error that
// names the option, its value and what is allowed. New sends nothing to Redis.
func New(client Client, name string, opts ...Option) (*Limiter, error) {
	c, err := configure(name, opts, inRedis)
	if err != nil {
		return nil, err
	}
	if isNil(client) {
		return nil, fmt.Errorf("redislimit: limiter %q: the client is nil: pass a *redis.Client or another go-redis client", name)
	}
	l := newLimiter(name, c)
	l.store = protect(newRedisStore(client, name, c, l.deciders, l.events), client, c, l.events)
	l.fallback = newFallback(c)
	l.denials = newDenyCache(c.denied, c.limits)
	return l, nil
}

func newLimiter(name string, c *config) *Limiter {
	l := &Limiter{name: name, limits: c.limits, events: &emitter{name, c.observe, c.logger}}
	for _, limit := range c.limits {
		l.names = append(l.names, limit.Name())
		l.deciders = append(l.deciders, limit.algorithm.compile(limit))
	}
	return l
}

// MustNew is [New] for one-liners at program start: it panics where New returns
// an error.
func MustNew(client Client, name string, opts ...Option) *Limiter {
	l, err := New(client, name, opts...)
	if err != nil {
		panic(err)
	}
	return l
}

// Name returns the name given to [New].
func (l *Limiter) Name() string { return l.name }

// Limits returns the limits, in the order given to [New].
func (l *Limiter) Limits() []Limit { return append([]Limit(nil), l.limits...) }

// Allow is [Limiter.AllowN] with a cost of 1.
func (l *Limiter) Allow(ctx context.Context, key string) (Result, error) {
	return l.AllowN(ctx, key, 1)
}

// AllowN decides whether something that costs n units may happen now for key,
// and charges them if so. A denial is a Result, not an error. A cost above the
// capacity is denied with a RetryAfter of [Never].
//
// Errors are [ErrInvalidCost] for a negative n, [ErrInvalidKey] for an empty
// key, the context's own error once it has ended, and with [FailClosed]
// [ErrUnavailable] when Redis could not answer; after that last one it is not known
// whether n was charged, nor after a context that ended while Redis was asked.
func (l *Limiter) AllowN(ctx context.Context, key string, n int64) (Result, error) {
	return l.decide(ctx, key, n, n > 0)
}

// Peek tells how key stands, and changes nothing: Allowed, RetryAfter and Delay
// are what [Limiter.Allow] would say now, the rest is as it stands. Errors are
// those of [Limiter.AllowN].
func (l *Limiter) Peek(ctx context.Context, key string) (Result, error) {
	return l.decide(ctx, key, 1, false)
}

// Reset forgets key: it is then as if never used. Errors are those of
// [Limiter.AllowN]; while Redis does not answer, only what this process knows is
// forgotten.
func (l *Limiter) Reset(ctx context.Context, key string) error {
	if err := check(ctx, key, 0); err != nil {
		return err
	}
	defer l.denials.forget(key)
	if l.fallback != nil && l.fallback.local != nil {
		_ = l.fallback.local.reset(ctx, key) // in memory nothing fails
	}
	return l.failure(ctx, l.store.reset(ctx, key))
}

// Close ends what [New] started; the client is the caller's. A Limiter starts
// nothing that outlives a call, so that Close has nothing to end, and decisions
// after it are as before.
func (l *Limiter) Close() error { return nil }

func (l *Limiter) decide(ctx context.Context, key string, n int64, charge bool) (Result, error) {
	if err := check(ctx, key, n); err != nil {
		return Result{}, err
	}
	if l.events.observe == nil || !charge && n > 0 {
		return l.ask(ctx, key, n, charge)
	}
	start := time.Now()
	res, err := l.ask(ctx, key, n, charge)
	l.events.emit(ctx, Event{Kind: EventDecision, Result: res, Cost: n, Took: time.Since(start), Err: err})
	return res, err
}

// ask decides with what is remembered, the store, or what stands in for it.
func (l *Limiter) ask(ctx context.Context, key string, n int64, charge bool) (Result, error) {
	if charge {
		if res, ok := l.denials.get(key, n); ok {
			return res, nil
		}
	}
	epoch, sent := l.denials.now()
	res, err := l.decideOn(ctx, l.store, l.deciders, key, n, charge)
	if err != nil {
		if err = l.failure(ctx, err); !errors.Is(err, ErrUnavailable) {
			return Result{}, err
		}
		return l.decideWithout(ctx, key, n, charge, err)
	}
	if charge {
		l.denials.put(key, n, res, epoch, sent)
	}
	return res, nil
}

// decideOn decides on a store that keeps the limits of deciders.
func (l *Limiter) decideOn(ctx context.Context, s store, deciders []decider, key string, n int64, charge bool) (Result, error) {
	r := l.newReceipt(s, key, n)
	if err := s.read(ctx, key, n, charge, r.readings); err != nil {
		return Result{}, err
	}
	return l.describe(r, deciders, charge), nil
}

func check(ctx context.Context, key string, n int64) error {
	switch {
	case n < 0:
		return fmt.Errorf("%w: it is %d", ErrInvalidCost, n)
	case key == "":
		return ErrInvalidKey
	}
	return ctx.Err()
}

// failure says what an error of the client's means to the caller.
func (l *Limiter) failure(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return err
	}
	return fmt.Errorf("%w: limiter %q: %w", ErrUnavailable, l.name, err)
}

// describe makes the Result of a decision.
func (l *Limiter) describe(r *receipt, deciders []decider, charge bool) Result {
	allowed := true
	for i := range r.readings {
		r.readings[i].admits = r.readings[i].admits || r.n == 0
		allowed = allowed && r.readings[i].admits
	}
	charge = charge && allowed
	var res Result
	if len(r.readings) == 1 {
		res = l.resultOf(0, r, deciders, charge)
	} else {
		all := make([]Result, len(r.readings))
		for i := range all {
			all[i] = l.resultOf(i, r, deciders, charge)
			if !allowed {
				all[i].Delay = 0 // whoever is turned away has no place in a queue
			}
		}
		res = combine(all, allowed)
	}
	if charge {
		res.receipt = r
	}
	return res
}

// resultOf makes the Result of one limit.
func (l *Limiter) resultOf(i int, r *receipt, deciders []decider, charged bool) Result {
	res := deciders[i].result(r.readings[i], r.n, charged)
	res.Allowed = r.readings[i].admits
	res.At = time.UnixMicro(r.readings[i].t)
	res.Name = l.names[i]
	res.Source = r.store.source()
	return res
}
