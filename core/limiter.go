package core

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/denials"
	"github.com/redislimit/redislimit/internal/hold"
	"github.com/redislimit/redislimit/internal/hook"
	"github.com/redislimit/redislimit/internal/lease"
	"github.com/redislimit/redislimit/internal/limits"
	"github.com/redislimit/redislimit/internal/memory"
	"github.com/redislimit/redislimit/internal/server"
)

// A Client is what a [Limiter] needs of a Redis client. *redis.Client,
// *redis.ClusterClient, *redis.Ring and redis.UniversalClient of go-redis v9 have
// it. Redis must be 6.0 or newer. Set ContextTimeoutEnabled in its options: without it, each
// lone call takes a second goroutine, so that it can end in time.
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
// nothing, but with the option [Ban]. A Limiter is safe for concurrent use.
type Limiter struct {
	*family // what is read as l.x is mostly its

	asked  []Limit       // as given
	by     *limits.Set   // the same, ready to decide
	store  *server.Store // of New, or nil
	keeper keeper
	looks  bool // its denials ban nobody
}

// A family is what a Limiter shares with those that With derives from it.
type family struct {
	config

	name     string
	states   string        // the States of the limits given to New: in memory their keys have no prefix
	memory   *memory.Store // of NewMemory, or nil
	now      func() time.Time
	stub     hook.Stub // of package limittest, or nil
	newStore func(*server.Limits) *server.Store
	fallback *memory.Store // of New with FailLocal, or nil
	denials  *denials.Cache[Result]
	events   *emitter
	lines    waitLines
	leases   *lease.Leases // of New with Lease, or nil
	renewer  *hold.Renewer
	derived  derived

	warned      sync.Map     // the messages that are logged once, or once a minute
	sampled     atomic.Bool  // a Reservation is watched that has nothing to renew
	overloads   atomic.Int64 // calls that could not be sent in time, and are not told of yet
	overloadLog minutely

	mu     sync.Mutex
	stores map[string]*server.Store // of New, by the algorithms of their limits
}

// New returns the Limiter called name over client. Limiters of one name share
// their counts, in whatever process they are; the name also appears in headers,
// events and metrics. It has 1 to 64 letters, digits and "_.-".
//
// The options are 1 to 12 limits, such as [TokenBucket] or [FixedWindow],
// and settings, such as [Prefix]. Of several limits all must admit a
// request, or none is charged. Any mistake in the configuration is an error that
// names the option, its value and what is allowed. New sends nothing to Redis.
func New(client Client, name string, opts ...Option) (*Limiter, error) {
	c, err := configure(name, opts)
	if err == nil {
		err = c.forRedis(name)
	}
	if err != nil {
		return nil, err
	}
	if isNil(client) {
		return nil, fmt.Errorf("redislimit: limiter %q: the client is nil: pass a *redis.Client or another go-redis client", name)
	}
	if _, queues := client.(redis.Pipeliner); queues {
		return nil, fmt.Errorf("redislimit: limiter %q: the client is a %T, which sends nothing until Exec: pass the client of which it is", name, client)
	}
	if slices.ContainsFunc(addressesOf(client), isURL) {
		return nil, fmt.Errorf("redislimit: limiter %q: an address of the client is a URL: Options.Addr is host:port, "+
			"and redis.ParseURL makes Options of a URL", name)
	}
	f := newFamily(name, c)
	if c.policy == failLocal {
		f.fallback = memory.New(c.entries, nil)
	}
	f.denials = denials.New[Result](c.denied)
	f.stores = make(map[string]*server.Store)
	if c.lease > 0 {
		f.leases = lease.New(c.lease, f.takeLease, f.settleLeases, f.leaseEvents())
	}
	hooks := f.hooks()
	f.newStore = func(limits *server.Limits) *server.Store {
		return server.NewStore(client, server.Config{
			Prefix: c.prefix, Limiter: name, Limits: limits, Timeout: c.timeout, MaxBatch: c.maxBatch,
			Clock: c.wall, Hooks: hooks,
		})
	}
	l := f.limiter(c.limits) // last: another limiter over the client may call the hooks at once
	l.warnOfMistakes(c)
	return l, nil
}

// addressesOf returns the addresses that a client of go-redis's own was given. A URL among them, which no dialer
// understands, would have its password in the log of each outage.
func addressesOf(client Client) []string {
	switch c := client.(type) {
	case *redis.Client:
		return []string{c.Options().Addr}
	case *redis.ClusterClient:
		return c.Options().Addrs
	case *redis.Ring:
		return slices.Collect(maps.Values(c.Options().Addrs))
	}
	return nil
}

func isURL(addr string) bool { return strings.Contains(addr, "://") }

// manyOpen is how many limiters over one client no service needs.
const manyOpen = 1000

// warnOfMistakes logs what may be meant, but hardly is.
func (l *Limiter) warnOfMistakes(c *config) {
	ctx := context.Background()
	others, open := l.store.Others()
	if others {
		l.events.logAt(ctx, slog.LevelWarn, "redislimit: another Limiter of this name over this client has other numbers on the same keys: "+
			"they count together, or, if the algorithm is another, too, each discards what the other has counted; "+
			"so give one another name, or change numbers by With")
	}
	if open == manyOpen {
		l.events.logAt(ctx, slog.LevelWarn, "redislimit: many Limiters over this client were made and not closed: "+
			"make each once, and not for each request; numbers of a customer's own are those of With", "limiters", open)
	}
	if i := slices.IndexFunc(c.limits, func(limit Limit) bool { return limit.tooSmallFor(int64(c.processes)) }); i >= 0 {
		l.events.logAt(ctx, slog.LevelWarn, "redislimit: "+c.given["Processes"]+" is more than a limit has units: "+
			"while Redis does not answer, each process admits one all the same", "limit", c.limits[i].Name())
	}
}

func newFamily(name string, c *config) *family {
	f := &family{
		config: *c, name: name,
		events:  &emitter{limiter: name, observers: c.observers, logger: c.logger},
		lines:   waitLines{byKey: make(map[string]*waitLine)},
		derived: derived{seed: maphash.MakeSeed()},
	}
	if f.now = c.clock; f.now == nil {
		f.now = time.Now
	}
	f.renewer = hold.NewRenewer(f.holdEvents(), f.now, c.clock != nil)
	f.states = newSet(name, c.limits, c.hold).States
	return f
}

func isNil(client Client) bool {
	v := reflect.ValueOf(client)
	return client == nil || v.Kind() == reflect.Pointer && v.IsNil()
}

// MustNew is [New] for one-liners at program start: it panics where New returns
// an error.
func MustNew(client Client, name string, opts ...Option) *Limiter {
	return must(New(client, name, opts...))
}

// Name returns the name given to [New].
func (l *Limiter) Name() string { return l.name }

// Limits returns the limits, in the order given to [New] or [Limiter.With].
func (l *Limiter) Limits() []Limit { return append([]Limit(nil), l.asked...) }

// Logger returns the logger given to the option [Logger], or else [slog.Default] as
// it is at the time. The middleware and key functions log there, too.
func (l *Limiter) Logger() *slog.Logger { return l.events.log() }

// Allow is [Limiter.AllowN] with a cost of 1.
func (l *Limiter) Allow(ctx context.Context, key string) (res Result, err error) {
	err = l.allow(ctx, call{key: key, n: 1, op: algorithm.OpCharge}, &res)
	return res, err
}

// AllowN decides whether something that costs n units may happen now for key,
// and charges them if so. A denial is a Result, not an error. A cost above the
// capacity is denied with a RetryAfter of [Never].
//
// Errors are [ErrInvalidCost] for a negative n, [ErrInvalidKey] for an empty
// key, the context's own error once it has ended, and with [FailClosed]
// [ErrUnavailable] when Redis could not answer. After ErrUnavailable and the context's error n
// may have been charged; for a context that had ended before, nothing is sent. A Limiter with
// [InFlight] refuses: use [Limiter.Acquire].
//
// Redis has the whole [Timeout] for a call. A caller whose ctx ends before that gets the context's
// error, while the call goes on: the outage policy never decides for it.
func (l *Limiter) AllowN(ctx context.Context, key string, n int64) (res Result, err error) {
	err = l.allow(ctx, call{key: key, n: n, op: algorithm.OpCharge}, &res)
	return res, err
}

// Peek returns the state of key, and charges nothing: Allowed, RetryAfter and Delay
// are what [Limiter.Allow] would return now, all else is as it is before that call.
// Errors are those of [Limiter.AllowN].
func (l *Limiter) Peek(ctx context.Context, key string) (res Result, err error) {
	err = l.allow(ctx, call{key: key, n: 1, op: algorithm.OpEvaluate}, &res)
	return res, err
}

// Reset forgets what was charged to key: its full limit is available again, but for
// what is held by [Limiter.Reserve] and the slots of [InFlight], of which it frees none.
// A key that was never charged is no error, so take the one that is: what a middleware counts by
// has its kind, such as "user:alice", and the functions of package keyfunc that begin with For
// make it. Errors are those of [Limiter.AllowN]; while Redis does not answer, only what this
// process knows is forgotten.
func (l *Limiter) Reset(ctx context.Context, key string) error {
	return l.change(ctx, key, func(k keeper, by *limits.Set) error { return k.Reset(ctx, by, key) })
}

// change has a keeper change what is stored of key, and forgets what this process knows of that.
func (l *Limiter) change(ctx context.Context, key string, do func(k keeper, by *limits.Set) error) error {
	if err := (call{key: key}).check(ctx); err != nil {
		return err
	}
	l.catchUp()
	defer l.denials.Forget(key, l.by)
	defer l.lines.forget(key)
	l.leases.Drop(key)
	if l.fallback != nil {
		_ = do(memoryKeeper{l.fallback}, l.by.Fallback) // memory never fails
	}
	return l.failure(ctx, do(l.keeper, l.by))
}

// Close ends the background work of the Limiter: probes, unless another open Limiter uses the
// client; renewals, so that held slots and units expire (call it when the work has ended); and
// leases, which are given back first. It waits a [Timeout] at most for these, and one for what
// callers left behind. It does not close the client. Decisions after it are as before, but
// nothing is leased and nothing renewed.
//
// The error is [ErrUnavailable] if leases could not be given back: it says how many units of how many
// keys are charged though nobody has spent them. All is closed all the same.
func (l *Limiter) Close() error {
	l.renewer.Close()
	lost := l.leases.Close()
	l.mu.Lock()
	stores := slices.Collect(maps.Values(l.stores))
	l.mu.Unlock()
	for _, s := range stores {
		s.Close()
	}
	if lost.Keys == 0 {
		return nil
	}
	return fmt.Errorf("%w: limiter %q: %d leased units could not be given back (keys: %d): they are charged within %v",
		ErrUnavailable, l.name, lost.Units, lost.Keys, l.lease+l.lease/6)
}

// warnOnce logs a message, but not again for this name.
func (f *family) warnOnce(ctx context.Context, message string) {
	if _, before := f.warned.LoadOrStore(message, true); !before {
		f.events.logAt(ctx, slog.LevelWarn, "redislimit: "+message+"; this is logged once")
	}
}

// errorMinutely logs an error once a minute, whatever clients do, with how many had this message since it was logged.
func (f *family) errorMinutely(ctx context.Context, message string, err error) {
	m, _ := f.warned.LoadOrStore(message, new(minutely))
	if n := m.(*minutely).due(); n > 0 { //nolint:forcetypeassert // no message is logged in two ways
		f.events.logAt(ctx, slog.LevelError, "redislimit: "+message, "error", err, "requests", n)
	}
}

// countsAs reports whether what l charges to a key is charged to what other counts there: it is the same Limiter, or
// another one of its name and limits over the client. Those of With are apart.
func (l *Limiter) countsAs(other *Limiter) bool {
	return l == other || l.family != other.family && l.store != nil && other.store != nil &&
		l.store.SharesKeys(other.store) && l.by.States == other.by.States
}

// failure returns an error of the store as users see it: ErrUnavailable, or that of the caller's own
// context if it has ended, whatever else was wrong.
func (l *Limiter) failure(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, server.ErrQueue), errors.Is(err, server.ErrSentLate):
		l.overloaded()
	}
	return fmt.Errorf("%w: limiter %q: %w", ErrUnavailable, l.name, err)
}
