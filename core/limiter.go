package core

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/claim"
	"github.com/redislimit/redislimit/internal/hook"
	"github.com/redislimit/redislimit/internal/memory"
	"github.com/redislimit/redislimit/internal/server"
)

// A Client is what a [Limiter] needs of a Redis client. *redis.Client,
// *redis.ClusterClient, *redis.Ring and redis.UniversalClient of go-redis v9 have
// it. Redis must be 6.0 or newer.
type Client interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// A Limiter controls how often things may happen, for each key on its own. Its
// limits hold across all processes that use the same Redis, the same prefix and
// the same name; Limiters of different names share nothing.
//
// Keys are stored in Redis as prefix:name:{key}:limit; a key that is longer than 64
// bytes or not plain ASCII is stored as a digest. Every Redis key has a TTL.
//
// A cost of 0 is always allowed and charges nothing; a denied request changes
// nothing. A Limiter is safe for concurrent use.
type Limiter struct {
	*family
	limits *limitSet
	store  *server.Store // of New, or nil
}

// A family is what a Limiter shares with those that With derives from it.
type family struct {
	id       uint64 // no other family of this process has it
	name     string
	identity string        // of the limits given to New or NewMemory
	hold     time.Duration // as given to Hold, or 0
	lease    time.Duration // as given to Lease, or 0
	timeout  time.Duration
	memory   *memory.Store // of NewMemory, or nil
	stub     hook.Stub     // of package limittest, or nil
	newStore func(*server.Limits) *server.Store
	policy   outagePolicy
	fallback *fallback // of New with FailLocal, or nil
	denials  *denyCache
	events   *emitter
	queues   waitQueues
	leases   *leases // of New with Lease, or nil
	renewer  renewer
	derived  derived

	dropLogged sync.Once // that slots were dropped

	mu     sync.Mutex
	stores map[string]*server.Store // of New, by the algorithms of their limits
}

// New returns the Limiter called name over client. Limiters of one name share
// their counts, in whatever process they are; the name also appears in headers,
// events and metrics. It has 1 to 64 letters, digits and "_.-".
//
// The options are one or more limits, such as [TokenBucket] or [FixedWindow],
// and settings, such as [Prefix]. Of several limits all must admit a
// request, or none is charged. Any mistake in the configuration is an error that
// names the option, its value and what is allowed. New sends nothing to Redis.
func New(client Client, name string, opts ...Option) (*Limiter, error) {
	c, err := configure(name, opts)
	if err != nil {
		return nil, err
	}
	if isNil(client) {
		return nil, fmt.Errorf("redislimit: limiter %q: the client is nil: pass a *redis.Client or another go-redis client", name)
	}
	f, limits := newFamily(name, c)
	f.policy = c.policy
	f.fallback = newFallback(f, c)
	f.denials = newDenyCache(c.denied)
	f.stores = make(map[string]*server.Store)
	if c.lease > 0 {
		f.leases = newLeases(c.lease, f.id, f.settleLeases, func(e Event) { f.events.emit(context.Background(), e) })
	}
	f.newStore = func(limits *server.Limits) *server.Store {
		return server.NewStore(client, server.Config{
			Prefix: c.prefix, Limiter: name, Limits: limits, Timeout: c.timeout, MaxBatch: c.maxBatch, Hooks: f.hooks(),
		})
	}
	return f.limiter(limits), nil // last: another limiter over the client may call the hooks at once
}

var lastID atomic.Uint64 // of the families of this process

// newFamily returns the family of a Limiter, and its limits.
func newFamily(name string, c *config) (*family, *limitSet) {
	limits := newLimitSet(name, c.limits, c.hold)
	return &family{
		id: lastID.Add(1), name: name, identity: limits.identity, hold: c.hold, lease: c.lease, timeout: c.timeout,
		events:  &emitter{limiter: name, observe: c.observe, logger: c.logger},
		derived: derived{seed: maphash.MakeSeed()},
	}, limits
}

func isNil(client Client) bool {
	if client == nil {
		return true
	}
	v := reflect.ValueOf(client)
	return v.Kind() == reflect.Pointer && v.IsNil()
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

// Limits returns the limits, in the order given to [New] or [Limiter.With].
func (l *Limiter) Limits() []Limit { return append([]Limit(nil), l.limits.limits...) }

// Logger returns the logger given to the option [Logger], or else [slog.Default] as
// it is at the time. The middleware and key functions log there, too.
func (l *Limiter) Logger() *slog.Logger { return l.events.log() }

// Allow is [Limiter.AllowN] with a cost of 1.
func (l *Limiter) Allow(ctx context.Context, key string) (res Result, err error) {
	err = l.decide(ctx, &res, key, 1, algorithm.OpCharge)
	return res, err
}

// AllowN decides whether something that costs n units may happen now for key,
// and charges them if so. A denial is a Result, not an error. A cost above the
// capacity is denied with a RetryAfter of [Never].
//
// Errors are [ErrInvalidCost] for a negative n, [ErrInvalidKey] for an empty
// key, the context's own error once it has ended, and with [FailClosed]
// [ErrUnavailable] when Redis could not answer. After ErrUnavailable, or a context
// that ended while Redis was asked, it is not known whether n was charged.
func (l *Limiter) AllowN(ctx context.Context, key string, n int64) (res Result, err error) {
	err = l.decide(ctx, &res, key, n, algorithm.OpCharge)
	return res, err
}

// Peek returns the state of key, and charges nothing: Allowed, RetryAfter and Delay
// are what [Limiter.Allow] would return now, all else is as it is before that call.
// Errors are those of [Limiter.AllowN].
func (l *Limiter) Peek(ctx context.Context, key string) (res Result, err error) {
	err = l.decide(ctx, &res, key, 1, algorithm.OpEvaluate)
	return res, err
}

// Reset forgets what was charged to key: its full limit is available again, but for
// what is held by [Limiter.Reserve] and the slots of [InFlight], of which it frees none.
// Errors are those of [Limiter.AllowN]; while Redis does not answer, only what this
// process knows is forgotten.
func (l *Limiter) Reset(ctx context.Context, key string) error {
	if err := check(ctx, key, 0); err != nil {
		return err
	}
	if l.memory != nil {
		l.memory.Reset(l.limits.memory, key)
		return nil
	}
	if l.stub != nil {
		return l.callStub(ctx, "Reset", key, 0)
	}
	defer l.denials.forget(key, l.limits)
	l.leases.drop(key)
	if l.fallback != nil {
		l.fallback.store.Reset(l.limits.fallback.memory, key)
	}
	return l.failure(ctx, l.store.Reset(ctx, l.limits.server, key))
}

// Close ends what runs in the background for the Limiter: the probes of a server
// that is down, unless other Limiters over its client need them, and the renewals of
// [Limiter.KeepHeld] and of slots, which then expire: call it when the work has ended. What
// is leased is given back first, and no more is; see [Lease]. That takes the [Timeout] at
// most for each. It does not close the client. Decisions after it are as before.
func (l *Limiter) Close() error {
	l.renewer.close()
	l.leases.close()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.stores {
		s.Close()
	}
	return nil
}

// decide decides on n units for key, charges or holds them if op says so and they are
// admitted, and emits the event. It writes the Result to res, as do the functions
// that it calls: to return it from each of them took a quarter of the time of a
// decision in memory.
func (l *Limiter) decide(ctx context.Context, res *Result, key string, n int64, op algorithm.Op) error {
	if err := check(ctx, key, n); err != nil {
		return err
	}
	isPeek := op == algorithm.OpEvaluate
	if l.events.observe == nil || isPeek {
		err := l.decideUnobserved(ctx, res, key, n, op)
		l.keepSlots(ctx, res)
		return err
	}
	start := time.Now()
	err := l.decideUnobserved(ctx, res, key, n, op)
	l.events.emit(ctx, Event{Kind: EventDecision, Result: *res, Cost: n, Took: time.Since(start), Err: err})
	l.keepSlots(ctx, res)
	return err
}

// decideUnobserved decides in memory, from the deny cache, in Redis or by the
// outage policy.
func (l *Limiter) decideUnobserved(ctx context.Context, res *Result, key string, n int64, op algorithm.Op) error {
	if l.stub != nil {
		return l.decideByStub(ctx, res, key, n, op)
	}
	if n == 0 {
		op = algorithm.OpEvaluate
	}
	if l.memory != nil {
		l.decideInMemory(l.memory, l.limits, res, key, n, op, SourceMemory)
		return nil
	}
	if l.leases != nil && op != algorithm.OpEvaluate {
		return l.decideLeased(ctx, res, key, n, op)
	}
	if op != algorithm.OpEvaluate && l.denials.get(res, key, n, l.limits) {
		return nil
	}
	return l.ask(ctx, res, key, n, op, nil)
}

// ask decides in Redis, or by the outage policy. With x, which may be nil, a lease is
// exchanged.
func (l *Limiter) ask(ctx context.Context, res *Result, key string, n int64, op algorithm.Op, x *exchange) error {
	generation, sent := l.denials.beforeCall()
	deniedFor, err := l.decideInRedis(ctx, res, key, n, op, x)
	if err != nil {
		if err = l.failure(ctx, err); !errors.Is(err, ErrUnavailable) {
			return err
		}
		return l.decideByPolicy(res, key, n, op, err)
	}
	if op != algorithm.OpEvaluate {
		l.denials.put(key, n, res, l.limits, deniedFor, generation, sent)
	}
	return nil
}

// decideInRedis also returns for how long at least the units are denied, if they are.
func (l *Limiter) decideInRedis(
	ctx context.Context, res *Result, key string, n int64, op algorithm.Op, x *exchange,
) (deniedFor time.Duration, err error) {
	d := newRedisDecision(l.id, len(l.limits.members))
	var held *reservation
	var refs []algorithm.Ref
	if l.limits.holds(op) {
		held = newReservation(l.id, l.limits, SourceRedis, op)
		refs = held.refs
	}
	var exchanged *server.Lease
	if x != nil {
		exchanged, x.answers = &x.Lease, d.answers
	}
	if err := l.store.Decide(ctx, l.limits.server, key, n, op, d.answers, refs, exchanged); err != nil {
		return 0, err
	}
	l.limits.fill(res, d.answers, n, op != algorithm.OpEvaluate, SourceRedis)
	switch {
	case !res.Allowed:
		return l.limits.deniedFor(d.answers, n), nil
	case held != nil:
		res.receipt = held.receipt(key, n)
	case op == algorithm.OpCharge:
		res.receipt = receipt{limits: l.limits, claim: d.set.Only(), key: key, n: n, id: res.receipt.id}
	}
	return 0, nil
}

// A redisDecision is what outlives the call that decides, all in one allocation
// where there is one limit.
type redisDecision struct {
	set     claim.Set          // copies of the Result refer to it
	answers []algorithm.Answer // a batch may write it after its caller has returned
	inline  [1]algorithm.Answer
}

func newRedisDecision(owner uint64, limits int) *redisDecision {
	d := &redisDecision{set: claim.Set{Owner: owner}}
	d.answers = d.inline[:]
	if limits > len(d.inline) {
		d.answers = make([]algorithm.Answer, limits)
	}
	return d
}

// decideInMemory decides by the state in s. The claim is zero if nothing was
// charged or reserved.
func (l *Limiter) decideInMemory(s *memory.Store, limits *limitSet, res *Result, key string, n int64, op algorithm.Op, source Source) {
	var inline [1]algorithm.Answer // it needs no allocation: it stays on the stack
	answers := inline[:]
	if len(limits.members) > len(inline) {
		answers = make([]algorithm.Answer, len(limits.members))
	}
	if limits.holds(op) {
		held := newReservation(l.id, limits, source, op)
		admitted := s.Hold(limits.memory, key, n, op, answers, held.refs)
		limits.fill(res, answers, n, true, source)
		if admitted {
			res.receipt = held.receipt(key, n)
		}
		return
	}
	charge := op == algorithm.OpCharge
	c := s.Decide(limits.memory, key, n, charge, answers)
	limits.fill(res, answers, n, charge, source)
	res.receipt.limits, res.receipt.claim, res.receipt.key, res.receipt.n = limits, c, key, n
}

func check(ctx context.Context, key string, n int64) error {
	switch {
	case n < 0:
		return fmt.Errorf("%w: it is %d, and must not be negative", ErrInvalidCost, n)
	case key == "":
		return ErrInvalidKey
	}
	return ctx.Err()
}

// failure returns an error of the store as users see it: ErrUnavailable, unless it
// is that of the caller's own context.
func (l *Limiter) failure(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return err
	}
	return fmt.Errorf("%w: limiter %q: %w", ErrUnavailable, l.name, err)
}
