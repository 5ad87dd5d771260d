package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/coreaccess"
	"github.com/redislimit/redislimit/internal/key"
)

// An Option configures a [Limiter]. Every [Limit] is an Option, and at least one Limit is needed.
// Setting the same thing twice is an error; only Limits, [Observe] and [ObserveKeys] can be given
// several times.
type Option interface{ apply(c *config) }

// config contains the values that the options of a Limiter set.
type config struct {
	clock         func() time.Time      // nil for the clock of the process
	simulated     coreaccess.Simulation // for tests
	limits        []Limit
	prefix        string
	entries       int // as given to MaxKeys
	policy        outagePolicy
	processes     int
	timeout       time.Duration
	holdDuration  time.Duration  // 0 for each limit's default
	leaseDuration time.Duration  // 0 without leases
	bans          algorithm.Bans // nil without the option Ban; empty if Ban has no times
	denyCache     int            // how many denials are remembered
	maxBatch      int
	observers     []observerOption
	logger        *slog.Logger

	given   map[string]string // the text of each setting that was given, by its field sets
	mistake error             // the first wrong option
}

// The defaults.
const (
	defaultPrefix   = "rl"
	defaultEntries  = 100_000
	defaultDenied   = 10_000
	defaultMaxBatch = 128
	defaultSlotTTL  = 10 * time.Second
	// defaultTimeout is far more than a healthy Redis needs, even while it forks or a packet is
	// retransmitted, and less than the time for which the clients of a service wait.
	defaultTimeout = 500 * time.Millisecond
)

// A setting is an Option that sets one value.
type setting struct {
	sets  string // the name of the value, which may be set only once
	text  string // the option as given
	valid bool
	allow string // which values are valid
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

// within returns the Option called name, whose value v must be from least to most.
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

// Prefix sets the beginning of the Limiter's Redis keys, so that several applications can share one
// Redis: 1 to 64 letters, digits and "_.-:". The default is "rl".
func Prefix(prefix string) Option {
	return setting{
		"prefix", fmt.Sprintf("Prefix(%.80q)", prefix), key.ValidPrefix(prefix),
		fmt.Sprintf("allowed are 1 to %d letters, digits and \"_.-:\"", key.MaxName),
		func(c *config) { c.prefix = prefix },
	}
}

// Timeout sets how long a decision waits for Redis at most, from 1 millisecond to 1 minute. The default
// is 500 ms. When the Timeout is over, the outage policy decides. With a much shorter Timeout than the
// default, a busy machine would be mistaken for an outage, and each process would then count
// separately. There are two cases in which a decision can wait for one more Timeout: with a [Lease], if
// it first waits until this process gets a lease; and if Redis lacks what the scripts need, because this
// process then also asks for the version of Redis, which the error names (see [ErrUnsupported]).
//
// No option of the client makes a decision wait longer. A hook of the client can, if the client has
// ContextTimeoutEnabled and the hook does not return when its context ends. A shorter ReadTimeout or
// WriteTimeout of the client ends decisions sooner. The error then names that option, and
// [Limiter.Check] advises to raise it. go-redis has a ReadTimeout of 5 seconds by default, so a longer
// Timeout needs a longer ReadTimeout.
//
// When Redis fails, each decision waits one Timeout at most, until the outage is noticed. They wait
// even if connections are refused at once, because go-redis tries a few times to connect. Until Redis
// has answered the first decision of this process, an outage is noticed only 3 s after the first
// timeout. (A successful [Limiter.Check] does not change this.) Once the outage is noticed, Redis is
// probed in the background, and decisions do not wait. There is one exception: if there was no decision
// for a second, the next decision, and those that come while it waits, wait for the result of a probe,
// for at most 100 ms. If Redis is asked about one key after the other, as [AllowAll] describes, these
// times apply to each key.
//
// If the deadline of a caller comes before the Timeout, the caller gets the error of its context, and
// the outage policy does not apply. The middleware then answers 503. If the HTTP client has left, the
// status is 499, which appears only in logs. So give requests more time than the Timeout. With
// ContextTimeoutEnabled, go-redis notices the deadline of a context, but not that a context is canceled.
// So a caller whose context is canceled can still wait until its call ends. If the call succeeds, the
// caller gets the Result.
func Timeout(d time.Duration) Option {
	return within("Timeout", d, time.Millisecond, time.Minute, func(c *config) { c.timeout = d })
}

// MaxBatch sets how many decisions of this process can share a round trip to Redis, from 1 (each
// has its own) to 1000. The default is 128.
//
// A decision is sent alone, at once, while fewer than four calls are in flight to the server (two to a
// node of a Cluster). Further decisions wait, in most cases until one of these calls returns, and are
// then sent together. (Under load, if round trips are short, decisions already wait while two calls are
// in flight, so that more of them are sent together. If those two hang, others are sent after a few
// milliseconds.) In a batch, the calls that reserve, settle or renew come first. Then the decisions
// follow in the order in which they came. Batches that are in flight at the same time can overtake each
// other. A caller waits for at most one additional round trip, unless more decisions are waiting than fit
// into one batch, or the first batch has to find out whether one script may have several keys. Under
// load, a decision costs Redis and this process less than half of the work that it would cost alone. A
// batch is also limited to about 1.2 ms of Redis's time, which is about 400 decisions of one limit.
//
// With clients other than *redis.Client and *redis.ClusterClient, decisions share no round trips.
// How decisions share scripts on a Cluster and behind a proxy is described in the operating guide.
//
// Hooks of the client, such as those for tracing, are called once for each batch. Their context has
// the values of the first caller's context, but does not end when the context of that caller ends.
// If a hook panics or ends its goroutine, all callers of the batch get the same error. It is not
// [ErrUnavailable], so the outage policy does not apply.
func MaxBatch(n int) Option {
	return within("MaxBatch", n, 1, 1000, func(c *config) { c.maxBatch = n })
}

// DenyCache sets how many denied keys each process remembers, from 0 (none) to 1e7. The default is
// 10,000. A remembered key takes about 350 bytes.
//
// While a denial is remembered, the key is denied without asking Redis, for any cost that is at least
// as large as the denied one. (Denials of costs above the capacity of a limit are remembered
// separately: Redis is asked about the first such cost, even if a cost within the capacity is
// remembered as denied.) A denial is remembered until its RetryAfter has passed, and for at most one
// second. It is remembered for a shorter time, or not at all, if it may be over sooner because
// somebody gives back slots of [InFlight] or units that are only held. So a Reset, a Cancel or a
// raised limit takes effect at once in the process that makes it, and within a second in other
// processes. The cache never admits anything.
//
// For a cost that is larger than the one that Redis denied, RetryAfter is a lower bound. For a cost
// above the capacity, Remaining is the number that Redis last reported. If [Ban] is given
// durations, only bans and denials of costs above the capacity are remembered. Every other denial
// can begin a ban, so Redis has to decide it.
func DenyCache(entries int) Option {
	return within("DenyCache", entries, 0, 1e7, func(c *config) { c.denyCache = entries })
}

// MaxKeys sets how many keys this process keeps in memory at most, from 1 to 1e8: in a Limiter of
// [NewMemory], and with [FailLocal] while Redis does not answer. The default is 100,000. A key
// takes about 200 bytes. With [Ban], a key that was banned can count as two.
func MaxKeys(n int) Option {
	return within("MaxKeys", n, 1, 1e8, func(c *config) { c.entries = n })
}

// Processes sets how many processes share the limits in the whole fleet, from 1 to 1e6. The default
// is 1. While Redis does not answer, [FailLocal] then enforces 1/n of each limit in each process,
// and denies any cost above that share.
//
// A share is at least one unit. If a limit has fewer than n units, n processes therefore admit n
// units together; New logs a warning about this.
func Processes(n int) Option {
	return within("Processes", n, 1, 1e6, func(c *config) { c.processes = n })
}

// Hold sets how long [Limiter.Reserve], [AcquireAll] and similar functions hold units that are not
// settled, from 10 milliseconds to 1 hour. The expiry is rounded up by at most a sixth. By default,
// each limit has a Hold of its own: its period, or for a bucket the time in which its whole [Burst]
// becomes available again, but at least a second and at most 60 seconds.
//
// Choose a longer Hold if the work takes longer. Choose a shorter Hold if the units of a process
// that died should become available again sooner. For [InFlight], use [SlotTTL].
func Hold(d time.Duration) Option {
	return within("Hold", d, minHold, maxHold, func(c *config) { c.holdDuration = d })
}

// Lease lets this process decide on frequently used keys locally, without exceeding the limit. The
// process reserves units of such a key for the duration d, and spends them without asking Redis.
// These decisions have [SourceLease]. d is from 10 milliseconds to 1 second. Without this option,
// a process never admits anything without asking Redis while Redis answers, except by limits that
// count nothing, such as [Unlimited].
//
// A key gets a lease when this process has had 8 requests with the key within d. A lease has as many
// units as this process used during d, but at most an eighth of the units that remained according to
// the last reply of Redis. That reply usually dates from before the previous lease. So leases shrink
// near the limit. A lease that would have fewer than three units is not taken. At most 4096 keys of a
// Limiter have leases, and only keys of up to 512 bytes. A lease is closed before d is over, at the
// latest after about four fifths of d, and the units that were not spent are given back. If the
// process dies before that, or cannot reach Redis in time, these units are charged. A process that
// decides only by leases notices an outage of Redis when it next closes or takes a lease.
//
// All processes together never admit more than the limits allow, provided that Redis keeps its
// writes and that its clock does not step forward. They can admit less than the limits allow: units
// on lease are not available to other processes for up to 7/6 of d, and it is possible that a large
// cost is denied again and again while leases serve small costs. If another process calls Reset or
// Cancel, or lowers a limit, this takes effect within d.
//
// A [LeakyBucket] and [InFlight] cannot be leased. [Limiter.Close] gives all leased units back.
func Lease(d time.Duration) Option {
	return within("Lease", d, 10*time.Millisecond, time.Second, func(c *config) { c.leaseDuration = d })
}

// Clock makes a Limiter of [NewMemory] use another clock than the clock of the process, for example
// to replay the traffic of another day. Decisions and holds use this clock. A renewal that has
// become due is made at the next decision. Only [Limiter.Wait] and similar methods sleep in real
// time. If the clock steps back, no time passes for the Limiter until the clock shows again what it
// showed before. clock must be safe for concurrent use. [New] refuses this option, because the
// clock of Redis decides there.
func Clock(clock func() time.Time) Option {
	return setting{"clock", "Clock(nil)", clock != nil, "want a function", func(c *config) { c.clock = clock }}
}

// Logger sets where the Limiter and its middleware log. The default is [slog.Default] at the time of
// each message. go-redis logs failed connections itself, unless you call redis.SetLogger.
//
// One line is logged when Redis fails, one per minute while it does not answer, and one when it
// answers again. If several Limiters have the same client and [Timeout], one of them logs these
// lines. Outages that follow each other quickly do not fill the log. For a minute after a line about
// an outage of a second or more, no new outage is logged; if it still lasts at the end of that
// minute, it is logged then. For a minute after any other line, a new outage is logged only once it
// has lasted for a second. The end of an outage is logged only if the outage itself was logged.
//
// Each failed call is logged at [slog.LevelDebug]. If the failure is no sign of an outage, because
// Redis has only refused that call, it is a warning instead, at most once per minute.
func Logger(logger *slog.Logger) Option {
	return setting{
		"logger", "Logger(nil)", logger != nil, "want a *slog.Logger",
		func(c *config) { c.logger = logger },
	}
}

// Observe makes the Limiter call observer for every [Event], in the goroutine in which the event
// happens. observer must be fast and safe for concurrent use. If Observe is given more than once,
// the observers are called in the order of the options. Without observers, events cost nothing.
//
// If the observer panics during an [EventDecision], [EventWait] or [EventKeyFallback], the panic
// reaches the caller of the method that caused the event. Other events can happen in the
// background, or on behalf of another Limiter over the same client. A panic during such an event is
// recovered, and logged once for each Limiter.
func Observe(observer func(ctx context.Context, e Event)) Option {
	return observerOption{"Observe", observer, nil}
}

// ObserveKeys is like [Observe], for an observer that also gets the key. Only an [EventDecision],
// an [EventBan] and an [EventWait] have a key; an EventWait about a middleware's Delay has none.
// Keys are personal data, and clients choose them, so never use them as labels of a metric. The
// page of package admin shows the keys that are denied most.
func ObserveKeys(observer func(ctx context.Context, key string, e Event)) Option {
	return observerOption{"ObserveKeys", nil, observer}
}

func (o observerOption) apply(c *config) {
	if o.plain == nil && o.keyed == nil {
		c.failf("%s(nil): want a function", o.option)
	}
	c.observers = append(c.observers, o)
}

// An outagePolicy decides while Redis does not answer.
type outagePolicy uint8

const (
	failLocal outagePolicy = iota
	failOpen
	failClosed
)

func (p outagePolicy) String() string {
	return [...]string{"FailLocal", "FailOpen", "FailClosed"}[p]
}

// configure applies the options of the Limiter called name, and checks them.
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
		c.mistake = checkLimits(c.limits, c.leaseDuration)
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

// checkEffects refuses options that have no effect, because of the limits or because of another option.
func (c *config) checkEffects() {
	if c.processes > 1 && c.policy != failLocal {
		c.failf("%s: an option of FailLocal, not of %v", c.given["Processes"], c.policy)
	}
	if c.holdDuration > 0 && !slices.ContainsFunc(c.limits, Limit.holds) {
		c.failf("%s: no limit holds units: slots of InFlight have a SlotTTL, and a LeakyBucket has places in a queue", c.given["Hold"])
	}
	if len(c.bans) > 0 && !slices.ContainsFunc(c.limits, func(l Limit) bool { return !l.kind.Slots }) {
		c.failf("%s: a denial by InFlight bans nobody: give it a limit with a rate, or Ban() for Block alone", c.given["bans"])
	}
}

// forRedis returns an error for options that New does not accept, although NewMemory does.
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

// checkLimits checks the limits of a Limiter. lease is the value given to Lease, or 0.
func checkLimits(limits []Limit, lease time.Duration) error {
	if len(limits) == 0 {
		return errors.New("no limit given: pass at least one, as in TokenBucket(PerMinute(100))")
	}
	if len(limits) > algorithm.MaxLimits {
		return fmt.Errorf("%d limits given: allowed are %d: give the others to another Limiter, and let AllowAll decide by both",
			len(limits), algorithm.MaxLimits)
	}
	first := make(map[string]Limit, len(limits))
	for _, l := range limits {
		if err := l.check(); err != nil {
			return fmt.Errorf("limit %v: %w", l, err)
		}
		if l.kind == unlimited {
			continue // several may be Unlimited, although they have the same name: they have no Results
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
