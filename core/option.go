package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/key"
)

// An Option configures a [Limiter]. Every [Limit] is one, and at least one Limit is needed. A
// setting that is given twice is an error.
type Option interface{ apply(c *config) }

// config is what the options of a Limiter add up to.
type config struct {
	clock     func() time.Time // nil for that of the process
	wall      func() time.Time // by which windows of a calendar are sent to Redis; nil for that of the process
	limits    []Limit
	prefix    string
	entries   int
	policy    outagePolicy
	processes int
	timeout   time.Duration
	hold      time.Duration  // 0 for each limit's default
	lease     time.Duration  // 0 for none
	bans      algorithm.Bans // nil without Ban; empty for Block alone
	denyCache int            // how many denials are remembered
	maxBatch  int
	observers []observerOption
	logger    *slog.Logger

	given   map[string]string // the text of each setting, by what it sets
	mistake error             // the first option that is wrong
}

// The defaults.
const (
	defaultPrefix   = "rl"
	defaultEntries  = 100_000
	defaultDenied   = 10_000
	defaultMaxBatch = 128
	defaultSlotTTL  = 10 * time.Second
	// defaultTimeout is far above what a healthy Redis takes, even while it forks or a packet is
	// sent again, and within what clients of services wait for an answer.
	defaultTimeout = 500 * time.Millisecond
)

// A setting is an Option that sets one thing.
type setting struct {
	sets  string // the name of what it sets; of one name only one may be given
	text  string // the option as given
	valid bool
	allow string // what would be valid
	set   func(c *config)
}

func (s setting) apply(c *config) {
	before, twice := c.given[s.sets]
	switch {
	case !s.valid:
		c.failf("%s: %s", s.text, s.allow)
	case twice && s.sets == "outage policy":
		c.failf("%s and %s: choose one", before, s.text)
	case twice:
		c.failf("%s and %s: give it once", before, s.text)
	}
	c.given[s.sets] = s.text
	s.set(c)
}

// within returns an Option that is allowed from least to most.
func within[T int | time.Duration](name string, v, least, most T, set func(c *config)) Option {
	return setting{name, fmt.Sprintf("%s(%v)", name, v), v >= least && v <= most, fmt.Sprintf("allowed is %v to %v", least, most), set}
}

func (c *config) failf(format string, args ...any) {
	if c.mistake == nil {
		c.mistake = fmt.Errorf(format, args...)
	}
}

type options []Option

// Options returns several options as one, to share settings between limiters.
func Options(opts ...Option) Option { return options(opts) }

func (o options) apply(c *config) {
	for i, option := range o {
		if option == nil {
			c.failf("option %d is nil: leave it out", i+1)
			continue
		}
		option.apply(c)
	}
}

func (l Limit) apply(c *config) { c.limits = append(c.limits, l) }

// Prefix sets what the Redis keys of the Limiter begin with, so that several applications can share
// one Redis: letters, digits and "_.-:", at most 64. The default is "rl".
func Prefix(prefix string) Option {
	return setting{
		"prefix", fmt.Sprintf("Prefix(%.80q)", prefix), key.ValidPrefix(prefix),
		fmt.Sprintf("allowed are 1 to %d letters, digits and \"_.-:\"", key.MaxName),
		func(c *config) { c.prefix = prefix },
	}
}

// Timeout sets how long a decision waits for Redis at most, from 1 millisecond to 1 minute. The default
// is 500 ms. When it is over, the outage policy decides. A timeout much shorter than the default would
// mistake a busy machine for an outage, and each process would then count separately. With a [Lease], a
// decision that first waits for the lease of another request may take two timeouts.
//
// No option of the client makes a decision wait longer. A hook of the client can, if the client has
// ContextTimeoutEnabled and the hook does not return when its context ends. A shorter ReadTimeout or
// WriteTimeout of the client ends decisions sooner. The error then names that option, and
// [Limiter.Check] advises to raise it. go-redis has a ReadTimeout of 5 seconds by default, so a longer
// Timeout needs a longer ReadTimeout.
//
// When Redis fails, the first decisions wait one timeout at most. They also wait where connections are
// refused, because go-redis tries a few times to connect. If the process has never reached the server,
// each decision in the first 3 s may wait one timeout. After that, Redis is probed in the background. A
// decision then waits only if no other came in the second before it, and at most 100 ms. If keys are
// asked one after the other, as [AllowAll] describes, these times apply to each key.
//
// If the deadline of a caller comes before the Timeout, the caller gets the error of its context: the
// outage policy does not apply, and the middleware answers 503, or nothing if the client has left. So
// give requests more time than the Timeout. With ContextTimeoutEnabled, a caller that is canceled may
// wait until its call ends, and gets the Result if the call succeeds before the caller's deadline.
func Timeout(d time.Duration) Option {
	return within("Timeout", d, time.Millisecond, time.Minute, func(c *config) { c.timeout = d })
}

// MaxBatch sets how many decisions of this process may share a round trip to Redis, from 1 (none
// share) to 1000. The default is 128. While fewer than four are in flight, or two to a node of a
// Cluster, each is sent alone, at once. Others wait for one to return, and are then sent together,
// in the order in which they came. A caller waits at most one extra round trip, and under load
// Redis and this process do less than half of the work. A batch is also bounded by the time that it
// takes Redis, at about 1.2 ms: some 400 decisions of one limit, fewer of several.
//
// On one server a batch is one script over many keys, and on a Cluster one to each node, which gets
// its keys as arguments: a script may not declare keys of several hash slots. What looks like one
// server may be a proxy before several: one that refuses keys of several hash slots in one script,
// or one that sends a script to the server of its first key (twemproxy, Envoy in ring-hash mode).
// Temporary keys find this out before the first batch, once for each client, and decisions are then
// sent alone. They also find out whether a node of a Cluster runs such scripts, as Redis and Valkey
// do; if not, its batches are pipelines of scripts. With clients other than *redis.Client and
// *redis.ClusterClient nothing is shared.
//
// Hooks of the client, such as those for tracing, see a batch once, with the context of its first
// caller, which does not end with that caller. If a hook panics, or ends its goroutine, the callers of
// the batch get one error, which is not [ErrUnavailable]: no outage policy decides.
func MaxBatch(n int) Option {
	return within("MaxBatch", n, 1, 1000, func(c *config) { c.maxBatch = n })
}

// DenyCache sets how many denied keys each process remembers, from 0 (none) to 1e7. The default is
// 10,000, at about 350 bytes each. A key that is remembered is denied without asking Redis, for a
// cost at least as large, until its RetryAfter is over and for one second at most. So a Reset, a
// Cancel or a raised limit in another process is seen within a second; one through this Limiter, at
// once. The cache only denies: it never admits anything. For a cost that is larger than the one
// that Redis denied, RetryAfter is a lower bound. Of a cost above the capacity Remaining is what
// Redis last said. With times of a [Ban] only bans are remembered, and what costs more than the
// capacity: Redis makes other denials, for they may ban.
func DenyCache(entries int) Option {
	return within("DenyCache", entries, 0, 1e7, func(c *config) { c.denyCache = entries })
}

// MaxKeys sets how many keys are held in this process at most, from 1 to 1e8: by a Limiter of
// [NewMemory], and by [FailLocal] while Redis does not answer. The default is 100,000, at about 200
// bytes each.
func MaxKeys(n int) Option {
	return within("MaxKeys", n, 1, 1e8, func(c *config) { c.entries = n })
}

// Processes sets how many processes share the limits, from 1 to 1e6, in the whole fleet. With
// [FailLocal] each then enforces 1/n of them, and denies what costs more than that, as long as
// Redis does not answer. It is at least one unit: where n is above a limit, n processes admit n,
// which New logs. The default is 1.
func Processes(n int) Option {
	return within("Processes", n, 1, 1e6, func(c *config) { c.processes = n })
}

// Hold sets for how long [Limiter.Reserve] holds units that are not settled, from 10 milliseconds
// to 1 hour; the expiry is rounded up by a sixth at most. The default of each limit is the time in
// which it comes back whole, at least a second and at most 60 s. A longer hold suits work that
// takes longer; a shorter one gives units sooner to others when a process has died. Of [InFlight]
// there is [SlotTTL].
func Hold(d time.Duration) Option {
	return within("Hold", d, minHold, maxHold, func(c *config) { c.hold = d })
}

// Lease has this process decide on hot keys by itself, and never over the limit: it reserves units
// of a key that it asks for often, for d, and spends them without asking Redis. Those decisions
// have [SourceLease]. d is from 10 milliseconds to 1 second. Without Lease, the default, every
// decision is made by Redis.
//
// A key is hot when it was asked for 8 times within d. A lease is for as many units as were used in
// d, and at most an eighth of what remains: near the limit leases shrink, and below three units
// there is none. What is not spent is given back when the lease ends, or is charged if this process
// dies before, or cannot tell Redis in time.
//
// No more is admitted than the limits allow, in any window and by any number of processes, while
// Redis keeps its writes and its clock does not step forward. Fewer may be: another process is
// denied the units that are out on leases, for d at most, and a large cost may be denied again and
// again while leases serve small ones. A Reset or a Cancel elsewhere and a lowered limit are
// noticed within d.
//
// A [LeakyBucket] and [InFlight] cannot be leased. [Limiter.Close] gives back what is leased.
func Lease(d time.Duration) Option {
	return within("Lease", d, 10*time.Millisecond, time.Second, func(c *config) { c.lease = d })
}

// Clock has a Limiter of [NewMemory] go by another clock than that of the process, so that traffic
// of another day can be replayed: decisions and holds go by it, and renewals that have become due
// are made at the next decision. Only Wait and its kin sleep in real time. A step back counts as no
// time. clock must be safe for concurrent use. [New] refuses it: there the clock of Redis decides.
func Clock(clock func() time.Time) Option {
	return setting{"clock", "Clock(nil)", clock != nil, "want a function", func(c *config) { c.clock = clock }}
}

// Logger sets where the Limiter and its middleware log: one line when Redis fails and one when it
// answers again, and only at [slog.LevelDebug] one for each failed call. An outage that begins within
// a minute of another's line is logged only if it lasts. The default is
// [slog.Default], as it is at the time. go-redis logs its failed connections itself, unless
// redis.SetLogger says otherwise.
func Logger(logger *slog.Logger) Option {
	return setting{
		"logger", "Logger(nil)", logger != nil, "want a *slog.Logger",
		func(c *config) { c.logger = logger },
	}
}

// Observe has observer called with every [Event], in the goroutine in which it happens: it must be
// fast and safe for concurrent use. Given more than once, all the observers are called, in that
// order. Without an observer events cost nothing.
//
// The observer's panic is its caller's for [EventDecision], [EventWait] and [EventKeyFallback]. All
// else may happen in the background, or on behalf of another Limiter over the client: there a panic
// is logged, once for each Limiter.
func Observe(observer func(ctx context.Context, e Event)) Option {
	return observerOption{"Observe", observer, nil}
}

// ObserveKeys is [Observe] for an observer that also gets the key: that of an [EventDecision] or
// [EventBan], and of an [EventWait] except for a middleware's Delay; other events have none. Keys
// are personal data, and clients choose them: have them in no metric. The page of package admin
// shows those that are denied most.
func ObserveKeys(observer func(ctx context.Context, key string, e Event)) Option {
	return observerOption{"ObserveKeys", nil, observer}
}

func (o observerOption) apply(c *config) {
	if o.plain == nil && o.keyed == nil {
		c.failf("%s(nil): want a function", o.option)
	}
	c.observers = append(c.observers, o)
}

// An outagePolicy is what decides while Redis does not.
type outagePolicy uint8

const (
	failLocal outagePolicy = iota
	failOpen
	failClosed
)

func (p outagePolicy) String() string {
	return [...]string{"FailLocal", "FailOpen", "FailClosed"}[p]
}

// configure applies and checks the options of the Limiter called name.
func configure(name string, opts []Option) (*config, error) {
	c := &config{
		prefix: defaultPrefix, entries: defaultEntries, denyCache: defaultDenied, maxBatch: defaultMaxBatch,
		timeout: defaultTimeout, processes: 1, given: make(map[string]string),
	}
	if !key.ValidName(name) {
		return nil, fmt.Errorf("redislimit: limiter name %.80q: allowed are 1 to %d letters, digits and \"_.-\"", name, key.MaxName)
	}
	options(opts).apply(c)
	if c.mistake == nil {
		c.mistake = checkLimits(c.limits, c.lease)
	}
	for _, l := range c.limits {
		if err := l.checkCount(); c.mistake == nil && err != nil {
			c.mistake = fmt.Errorf("limit %v: %w", l, err)
		}
	}
	if c.mistake == nil {
		c.checkEffects()
	}
	if c.mistake != nil {
		return nil, fmt.Errorf("redislimit: limiter %q: %w", name, c.mistake)
	}
	return c, nil
}

// checkEffects refuses options that have no effect on the limits.
func (c *config) checkEffects() {
	if c.processes > 1 && c.policy != failLocal {
		c.failf("%s: an option of FailLocal, not of %v", c.given["Processes"], c.policy)
	}
	if c.hold > 0 && !slices.ContainsFunc(c.limits, Limit.holds) {
		c.failf("%s: no limit holds units: slots of InFlight have a SlotTTL, and a LeakyBucket has places in a queue", c.given["Hold"])
	}
	if len(c.bans) > 0 && !slices.ContainsFunc(c.limits, func(l Limit) bool { return !l.kind.Slots }) {
		c.failf("%s: a denial by InFlight bans nobody: give it a limit with a rate, or Ban() for Block alone", c.given["bans"])
	}
}

// forRedis refuses what a Limiter of New does not take, and checks what it alone has.
func (c *config) forRedis(name string) error {
	switch {
	case c.clock != nil:
		c.failf("Clock: an option of NewMemory: here the clock of Redis decides")
	case c.given["MaxKeys"] != "" && c.policy != failLocal:
		c.failf("%s: an option of NewMemory and FailLocal, not of %v", c.given["MaxKeys"], c.policy)
	default:
		return nil
	}
	return fmt.Errorf("redislimit: limiter %q: %w", name, c.mistake)
}

// checkLimits checks the limits of a Limiter, whose lease is 0 if it has none.
func checkLimits(limits []Limit, lease time.Duration) error {
	if len(limits) == 0 {
		return errors.New("no limit given: pass at least one, as in TokenBucket(PerMinute(100))")
	}
	if len(limits) > algorithm.MaxLimits {
		return fmt.Errorf("%d limits given: allowed are %d: give the others to another Limiter, and ask both by AllowAll", len(limits), algorithm.MaxLimits)
	}
	first := make(map[string]Limit, len(limits))
	for _, l := range limits {
		if err := l.check(); err != nil {
			return fmt.Errorf("limit %v: %w", l, err)
		}
		if l.kind == unlimited {
			continue // it needs no name of its own: beside others it has no Result
		}
		if other, taken := first[l.Name()]; taken {
			return fmt.Errorf("limits %v and %v are both called %q, and Results could not tell them apart: give one of them another LimitName",
				other, l, l.Name())
		}
		if lease > 0 && l.kind.Unleasable != "" {
			return fmt.Errorf("Lease(%v): limit %v cannot be leased: %s", lease, l, l.kind.Unleasable)
		}
		first[l.Name()] = l
	}
	return nil
}
