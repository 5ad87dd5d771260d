package core

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/coreaccess"
	"github.com/redislimit/redislimit/internal/decision"
	"github.com/redislimit/redislimit/internal/denials"
	"github.com/redislimit/redislimit/internal/hold"
	"github.com/redislimit/redislimit/internal/limits"
	"github.com/redislimit/redislimit/internal/memory"
	"github.com/redislimit/redislimit/internal/redisstore"
)

// A Client is the part of a Redis client that a [Limiter] needs. *redis.Client,
// *redis.ClusterClient, *redis.Ring and redis.UniversalClient of go-redis v9 implement it. Redis
// must be 6.0 or newer. Set ContextTimeoutEnabled in the options of the client. Without that
// option, each call that is sent alone needs a second goroutine, so that the call can end in time.
type Client interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// New returns the Limiter called name, which counts in the Redis of client. Limiters of the same
// name and [Prefix] share their counts, across all processes. The guide explains under "What
// identifies a count" which changes of a limit keep the units that were used. The name also appears
// in headers, events and metrics. It has 1 to 64 letters, digits and "_.-".
//
// The options are 1 to 12 limits, such as [TokenBucket] or [FixedWindow], and settings, such as
// [Prefix]. If there are several limits, a request is admitted and charged only if all of them
// admit it. The error for a wrong option names the option, its value and what is allowed. New sends
// nothing to Redis.
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
		return nil, fmt.Errorf("redislimit: limiter %q: the client is a %T, which sends nothing until Exec: pass the client that made it", name, client)
	}
	if slices.ContainsFunc(addressesOf(client), isURL) {
		return nil, fmt.Errorf("redislimit: limiter %q: an address of the client is a URL: Options.Addr is host:port, "+
			"and redis.ParseURL makes Options of a URL", name)
	}
	f := newFamily(name, c)
	f.stores.byScripts = make(map[string]*redisstore.Store)
	redis := &inRedis{now: f.now}
	f.backend, f.overRedis = redis, true
	f.denials = denials.New(c.denyCache, len(c.bans) > 0)
	if c.policy == failLocal {
		f.fallback = &inMemory{memory.New(c.entries, nil), decision.Fallback, f.now, c.bans != nil}
	}
	if c.leaseDuration > 0 {
		f.leasing = newLeasing(f, redis)
		f.leases = f.leasing.all
	}
	hooks := f.hooks()
	f.stores.open = func(limits *redisstore.Limits) *redisstore.Store {
		return redisstore.NewStore(client, redisstore.Config{
			Prefix: c.prefix, Limiter: name, Limits: limits, Timeout: c.timeout, MaxBatch: c.maxBatch,
			Clock: c.simulated.Wall, Hooks: hooks, OnlyCallers: c.simulated.Leases != nil,
		})
	}
	l := f.limiter(c.limits) // last, because the hooks may be called from now on: the client may have other limiters
	l.warnOfMistakes(c)
	return l, nil
}

// addressesOf returns the addresses in the options of a client of go-redis. New refuses an address
// that is a URL: no dialer understands it, and its password would appear in the log of every outage.
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

// manyOpen is how many Stores over one client, made and not closed, cause a warning. Each Limiter that New
// returns has a Store, and one more for each other list of algorithms that With is given. No service needs
// that many.
const manyOpen = 1000

// warnOfMistakes logs configurations that are allowed but are probably mistakes.
func (l *Limiter) warnOfMistakes(c *config) {
	ctx := context.Background()
	others, open := l.set.Store.Others()
	if others {
		l.family.events.logAt(ctx, slog.LevelWarn, "redislimit: another Limiter with this name over this client has other numbers on the same keys, "+
			"so they count together: give one of them another name, or change numbers by With")
	}
	if open == manyOpen {
		l.family.events.logAt(ctx, slog.LevelWarn, "redislimit: many Limiters over this client were made and not closed: "+
			"make each once, and not for each request; numbers of a customer's own are those of With", "limiters", open)
	}
	if i := slices.IndexFunc(c.limits, func(limit Limit) bool { return limit.tooSmallFor(int64(c.processes)) }); i >= 0 {
		l.family.events.logAt(ctx, slog.LevelWarn, "redislimit: "+c.given["Processes"]+" is more than a limit has units: "+
			"while Redis does not answer, each process admits one all the same", "limit", c.limits[i].Name())
	}
}

func isNil(client Client) bool {
	v := reflect.ValueOf(client)
	return client == nil || v.Kind() == reflect.Pointer && v.IsNil()
}

// MustNew is [New] for one-liners at program start: it panics where New returns an error.
func MustNew(client Client, name string, opts ...Option) *Limiter {
	return must(New(client, name, opts...))
}

// NewMemory returns a Limiter that counts in this process, by the same algorithms, and needs no
// Redis. Limiters that it returns share nothing, even if they have the same name. It suits tests,
// and services of one process that want the algorithms and the middleware of this library.
//
// Its memory is bounded by [MaxKeys]. When it keeps about that many keys, a new key replaces one of
// 16 keys that are chosen at random: one whose full limit is available again, or else the key that has
// used the smallest part of its limit. So a new key is always counted, and a key whose limit is
// used up is rarely evicted unless nearly all limits are used up. A [SlidingWindowLog] also keeps
// 24 bytes for each admitted call in its window.
//
// Time is measured by the monotonic clock, starting from the wall clock at the time of NewMemory.
// If somebody changes the wall clock afterwards, the Limiter does not follow: windows and bans end
// as if the clock had not been changed, and Result.At and calendar windows differ from the wall
// clock by the change.
//
// It takes the options of [New] and checks them in the same way. Options that concern Redis have no
// effect, so tests can pass the options of the service. NewMemory also accepts two things that New
// refuses: the option [Clock], and the combination of [MaxKeys] with [FailOpen] or [FailClosed].
func NewMemory(name string, opts ...Option) (*Limiter, error) {
	c, err := configure(name, opts)
	if err != nil {
		return nil, err
	}
	f := newFamily(name, c)
	f.backend = &inMemory{memory.New(c.entries, c.clock), decision.Memory, f.now, c.bans != nil}
	return f.limiter(c.limits), nil
}

// MustNewMemory is [NewMemory] for one-liners at program start: it panics where NewMemory returns
// an error.
func MustNewMemory(name string, opts ...Option) *Limiter { return must(NewMemory(name, opts...)) }

func must(l *Limiter, err error) *Limiter {
	if err != nil {
		panic(err)
	}
	return l
}

// With returns a Limiter like l that has the given limits in place of all limits of l. It is meant
// for numbers that differ between keys and come from a database, such as those of a customer's
// contract. The returned Limiter shares everything else with l: name, settings, the deny cache, the
// memory of [FailLocal] and the observers. It also shares round trips to Redis if its limits have
// the same algorithms, in the same order.
//
//	limits, err := lim.With(core.TokenBucket(core.PerMinute(customer.PerMinute), core.LimitName("requests")))
//	// ...
//	res, err := limits.Allow(ctx, "customer:"+customer.ID)
//
// With is fast, and allocates nothing for limits that were given before, so you can call it for
// each request. Up to 100,000 different lists of limits are remembered, at 1 to 2.5 kB each. So
// pass numbers of your own, never numbers that a client chooses.
//
// If only the count or the burst of a key's limit changes, the units that the key has used stay
// used. A change of the algorithm starts a fresh count. So does a change of the period, except in a
// bucket with a name. So does a change of the kind of windows; see [LimitName]. Used units of a
// bucket come back at the rate of the limit with which the key was charged last.
//
// For a customer without a limit, use [Unlimited]. For a customer who may do nothing, use a count
// of 0; see [Limit].
//
// Closing one of these Limiters closes all of them. The error for a wrong limit names the limit, as
// in [New].
func (l *Limiter) With(given ...Limit) (*Limiter, error) {
	hash := hashOf(given)
	if d := l.family.derived.get(hash, given); d != nil {
		return d, nil
	}
	if err := checkLimits(given, l.family.leaseDuration); err != nil {
		return nil, &coreaccess.WrongLimitError{Err: fmt.Errorf("redislimit: limiter %q: With: %w", l.family.name, err)}
	}
	return l.family.derived.put(hash, l.family.limiter(slices.Clone(given))), nil
}

func newFamily(name string, c *config) *family {
	f := &family{
		config: *c, name: name,
		events:           &emitter{limiter: name, observers: c.observers, logger: c.logger},
		decidesUncounted: c.bans != nil,
	}
	if f.now = c.clock; f.now == nil {
		f.now = time.Now
	}
	holdsClock := c.simulated.Holds
	if holdsClock == nil {
		holdsClock = f.now
	}
	// Timers run by the clock of the process. If another clock says what is due, only callers renew.
	onlyCallers := c.clock != nil || c.simulated.Leases != nil
	f.renewer = hold.NewRenewer(f.holdEvents(), holdsClock, onlyCallers)
	return f
}

// limiter returns a new Limiter of the family that decides by the configured limits.
func (f *family) limiter(configured []Limit) *Limiter {
	l := &Limiter{family: f, configured: configured, set: newSet(f.name, configured, f.holdDuration)}
	switch f.backend.(type) {
	case *inMemory:
		l.set.Memory = memory.NewLimits(l.set.Limits, l.set.Keys, f.bans)
	case *inRedis:
		l.set.Redis = redisstore.NewLimits(l.set.Limits, l.set.Keys, f.bans)
		l.set.Store = f.stores.of(l.set)
	}
	if f.fallback != nil {
		l.set.Fallback = newSet(f.name, f.share(configured), f.holdDuration)
		l.set.Fallback.Names = l.set.Names
		l.set.Fallback.Memory = memory.NewLimits(l.set.Fallback.Limits, l.set.Keys, f.bans)
	}
	return l
}

// newSet returns the configured limits in the form in which they decide. hold is the value given to
// Hold, or 0. Unlimited limits are left out. If all limits are Unlimited, the Set contains one of
// them, in the form of a fixed window that is never charged: so a store can look up the ban of a key
// as it does for any other limit.
func newSet(limiter string, configured []Limit, hold time.Duration) *limits.Set {
	all := make([]limits.Config, 0, len(configured))
	for _, l := range configured {
		if l.kind == unlimited {
			continue
		}
		one := limits.Config{Kind: l.decidedBy(), Numbers: l.numbers(), Name: l.Name(), Key: l.key(), HoldDuration: hold, Zero: l.isZero()}
		if l.kind.Slots {
			one.HoldDuration = cmp.Or(l.slotTTL, defaultSlotTTL)
		}
		all = append(all, one)
	}
	if len(all) == 0 {
		name := unlimited.Name // Limit.key returns this for no other limit
		all = append(all, limits.Config{Kind: algorithm.FixedWindow, Numbers: FixedWindow(PerMinute(1)).numbers(), Name: name, Key: name, Unlimited: true})
	}
	return limits.New(limiter, all)
}
