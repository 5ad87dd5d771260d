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
	store    *protected // nil in memory
	local    *memory    // nil in Redis
	fallback *fallback  // while Redis does not answer; nil in memory
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
	l.fallback = newFallback(l, c)
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
func (l *Limiter) Allow(ctx context.Context, key string) (res Result, err error) {
	err = l.decide(ctx, &res, key, 1, true)
	return res, err
}

// AllowN decides whether something that costs n units may happen now for key,
// and charges them if so. A denial is a Result, not an error. A cost above the
// capacity is denied with a RetryAfter of [Never].
//
// Errors are [ErrInvalidCost] for a negative n, [ErrInvalidKey] for an empty
// key, the context's own error once it has ended, and with [FailClosed]
// [ErrUnavailable] when Redis could not answer; after that last one it is not known
// whether n was charged, nor after a context that ended while Redis was asked.
func (l *Limiter) AllowN(ctx context.Context, key string, n int64) (res Result, err error) {
	err = l.decide(ctx, &res, key, n, n > 0)
	return res, err
}

// Peek tells how key stands, and changes nothing: Allowed, RetryAfter and Delay
// are what [Limiter.Allow] would say now, the rest is as it stands. Errors are
// those of [Limiter.AllowN].
func (l *Limiter) Peek(ctx context.Context, key string) (res Result, err error) {
	err = l.decide(ctx, &res, key, 1, false)
	return res, err
}

// Reset forgets key: it is then as if never used. Errors are those of
// [Limiter.AllowN]; while Redis does not answer, only what this process knows is
// forgotten.
func (l *Limiter) Reset(ctx context.Context, key string) error {
	if err := check(ctx, key, 0); err != nil {
		return err
	}
	if l.local != nil {
		l.local.reset(key)
		return nil
	}
	defer l.denials.forget(key)
	if l.fallback.local != nil {
		l.fallback.local.reset(key)
	}
	return l.failure(ctx, l.store.reset(ctx, key))
}

// Close ends what [New] started; the client is the caller's. A Limiter starts
// nothing that does not end by itself with the calls under way, so that Close has
// nothing to end, and decisions after it are as before.
func (l *Limiter) Close() error { return nil }

func (l *Limiter) decide(ctx context.Context, res *Result, key string, n int64, charge bool) error {
	if err := check(ctx, key, n); err != nil {
		return err
	}
	if l.events.observe == nil || !charge && n > 0 {
		return l.ask(ctx, res, key, n, charge)
	}
	start := time.Now()
	err := l.ask(ctx, res, key, n, charge)
	l.events.emit(ctx, Event{Kind: EventDecision, Result: *res, Cost: n, Took: time.Since(start), Err: err})
	return err
}

func (l *Limiter) ask(ctx context.Context, res *Result, key string, n int64, charge bool) error {
	if l.local == nil {
		return l.askStore(ctx, res, key, n, charge)
	}
	l.local.decide(res, key, n, charge)
	return nil
}

// askStore decides with what is remembered, Redis, or what stands in for it.
func (l *Limiter) askStore(ctx context.Context, res *Result, key string, n int64, charge bool) error {
	if charge && l.denials.get(res, key, n) {
		return nil
	}
	epoch, sent := l.denials.now()
	err := l.decideInRedis(ctx, res, key, n, charge)
	if err != nil {
		if err = l.failure(ctx, err); !errors.Is(err, ErrUnavailable) {
			return err
		}
		return l.decideWithout(res, key, n, charge, err)
	}
	if charge {
		l.denials.put(key, n, *res, epoch, sent)
	}
	return nil
}

func (l *Limiter) decideInRedis(ctx context.Context, res *Result, key string, n int64, charge bool) error {
	b := l.newBook()
	if err := l.store.read(ctx, key, n, charge, b.readings); err != nil {
		return err
	}
	l.describe(res, b.readings, l.deciders, n, charge, SourceRedis)
	if charge && res.Allowed {
		res.receipt.book, res.receipt.key, res.receipt.n = b, key, n
	}
	return nil
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

// describe makes the Result of a decision on n units from what each limit found.
func (l *Limiter) describe(res *Result, found []reading, deciders []decider, n int64, charge bool, source Source) {
	allowed := true
	for i := range found {
		found[i].admits = found[i].admits || n == 0
		allowed = allowed && found[i].admits
	}
	charge = charge && allowed
	if len(found) == 1 {
		l.describeOne(res, 0, &found[0], deciders[0], n, charge, source)
		return
	}
	all := make([]Result, len(found))
	for i := range all {
		l.describeOne(&all[i], i, &found[i], deciders[i], n, charge, source)
		if !allowed {
			all[i].Delay = 0 // whoever is turned away has no place in a queue
		}
	}
	*res = combine(all, allowed)
}

// describeOne makes the Result of one limit.
func (l *Limiter) describeOne(res *Result, i int, r *reading, d decider, n int64, charged bool, source Source) {
	result(d, res, r, n, charged)
	res.Allowed = r.admits
	res.At = time.UnixMicro(r.t)
	res.Limiter, res.Name = l.name, l.names[i]
	res.Source = source
	if charged {
		res.receipt.mark = d.mark(*r)
	}
}
