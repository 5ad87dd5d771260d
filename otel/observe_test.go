package otellimit_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/inside"
	"github.com/redislimit/redislimit/internal/testkit/redisclient"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
	otellimit "github.com/redislimit/redislimit/otel"
)

// allow makes n decisions for a key, and returns the last one.
func allow(tb testing.TB, lim *core.Limiter, n int) (res core.Result, err error) {
	tb.Helper()
	for range n {
		res, err = lim.Allow(context.WithoutCancel(tb.Context()), "user:alice")
	}
	return res, err
}

// TestInstruments emits every kind of event, and checks the names, units and kinds of the instruments.
func TestInstruments(t *testing.T) {
	t.Parallel()
	m := newMeter(t)
	lim := core.MustNew(noRedis(t), "api", core.TokenBucket(core.PerHour(1)), m.observe())
	for kind := range core.EventKind(20) {
		inside.Core.Emit(t.Context(), lim, core.Event{Kind: kind, Cost: 1, Took: time.Second})
		inside.Core.Emit(t.Context(), lim, core.Event{Kind: kind, Cost: -1})
	}
	want := map[string]string{
		"redislimit.decisions":             "{decision}, counter",
		"redislimit.decision.duration":     "s, histogram",
		"redislimit.redis.failures":        "{failure}, counter",
		"redislimit.script.loads":          "{load}, counter",
		"redislimit.key.fallbacks":         "{fallback}, counter",
		"redislimit.slots.held":            "{slot}, up-down counter",
		"redislimit.slots.lost":            "{slot}, counter",
		"redislimit.overload.calls":        "{call}, counter",
		"redislimit.bans":                  "{ban}, counter",
		"redislimit.reservations.canceled": "{reservation}, counter",
		"redislimit.wait.duration":         "s, histogram",
		"redislimit.lease.grants":          "{lease}, counter",
		"redislimit.lease.units.held":      "{unit}, up-down counter",
		"redislimit.lease.units.spent":     "{unit}, counter",
		"redislimit.lease.units.returned":  "{unit}, counter",
		"redislimit.fallback.active":       "1, up-down counter",
		"redislimit.breaker.state":         "1, up-down counter",
	}
	got := map[string]string{}
	for name, metric := range m.collected() {
		kind := "histogram"
		if sum, ok := metric.Data.(metricdata.Sum[int64]); ok {
			kind = map[bool]string{true: "counter", false: "up-down counter"}[sum.IsMonotonic]
		}
		got[name] = metric.Unit + ", " + kind
		if metric.Description == "" {
			t.Errorf("%s has no description, want one", name)
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("got the instruments\n%v\nwant\n%v", got, want)
	}
}

// A reply is an error reply of Redis, as go-redis returns it.
type reply string

var _ redis.Error = reply("")

func (r reply) Error() string { return string(r) }
func (r reply) RedisError()   {}

// TestEvents emits events, and checks all series that are made from them. No series may contain text of an error, which may contain a key.
func TestEvents(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		kind   core.EventKind // the Kind of the events that have none
		events []core.Event
		want   map[string]int64
	}{
		"keys":                       {core.EventKeyFallback, []core.Event{{}, {}}, map[string]int64{"key.fallbacks{limiter.name=api}": 2}},
		"an overload of two seconds": {core.EventOverload, []core.Event{{Cost: 700}, {Cost: 74}}, map[string]int64{"overload.calls{limiter.name=api}": 774}},
		"bans by denials and by Block, of which one was ended, and one failed": {
			core.EventBan,
			[]core.Event{
				{Took: time.Minute, Result: core.Result{Source: core.SourceRedis}}, {Took: time.Hour, Result: core.Result{Source: core.SourceFallback}},
				{Took: time.Hour}, {}, {Took: time.Hour, Err: core.ErrUnavailable},
			},
			map[string]int64{"bans{ban.cause=denial limiter.name=api}": 2, "bans{ban.cause=block limiter.name=api}": 1},
		},
		"waits, two of which were abandoned": {
			core.EventWait,
			[]core.Event{{Took: time.Second}, {}, {Err: context.Canceled}, {Err: fmt.Errorf("user:alice: %w", context.DeadlineExceeded)}},
			map[string]int64{
				"wait.duration{limiter.name=api}":                     2,
				"wait.duration{error.type=canceled limiter.name=api}": 1,
				"wait.duration{error.type=timeout limiter.name=api}":  1,
			},
		},
		"canceled reservations": {core.EventCancel, []core.Event{{Cost: 500}, {Cost: 1}}, map[string]int64{"reservations.canceled{limiter.name=api}": 2}},
		"slots of two limits": {
			core.EventSlots,
			[]core.Event{
				{Result: core.Result{LimitName: "inflight"}, Cost: 3}, {Result: core.Result{LimitName: "all"}, Cost: 3}, {Result: core.Result{LimitName: "all"}, Cost: -1},
				{Kind: core.EventSlotLost, Cost: 2},
			},
			map[string]int64{
				"slots.held{limit.name=inflight limiter.name=api}": 3,
				"slots.held{limit.name=all limiter.name=api}":      2,
				"slots.lost{limiter.name=api}":                     2,
			},
		},
		"two leases, one of which has ended": {
			core.EventLease,
			[]core.Event{{Cost: 30}, {Cost: 50}, {Cost: -30, Spent: 20}},
			map[string]int64{
				"lease.grants{limiter.name=api}":         2,
				"lease.units.held{limiter.name=api}":     50,
				"lease.units.spent{limiter.name=api}":    20,
				"lease.units.returned{limiter.name=api}": 10,
			},
		},
		"types of errors": {
			core.EventOutage,
			[]core.Event{
				{Err: errors.New("user:alice is not welcome")}, {Err: reply("user:alice is not welcome")}, {Err: reply("OOM at user:alice")},
				{Err: fmt.Errorf("%w: user:alice", core.ErrUnavailable)}, {Err: context.Canceled}, {Err: context.DeadlineExceeded},
			},
			map[string]int64{
				"redis.failures{error.type=_OTHER limiter.name=api}":      2,
				"redis.failures{error.type=OOM limiter.name=api}":         1,
				"redis.failures{error.type=unavailable limiter.name=api}": 1,
				"redis.failures{error.type=canceled limiter.name=api}":    1,
				"redis.failures{error.type=timeout limiter.name=api}":     1,
			},
		},
		"a breaker, with events in a wrong order": {
			core.EventBreaker,
			[]core.Event{
				{Detail: "closed"}, {Detail: "open"}, {Detail: "closed"}, {}, {Detail: "ajar"},
				{Kind: core.EventFallbackOff}, // the fallback was not on
				{Detail: "open"}, {Kind: core.EventFallbackOn},
			},
			breakerSeries("api", 1, "open"),
		},
		"breakers of two servers": {
			core.EventBreaker,
			[]core.Event{
				{Server: "a", Detail: "open"}, {Server: "b", Detail: "open"}, {Server: "a", Detail: "closed"},
				{Kind: core.EventFallbackOn, Server: "a"}, {Kind: core.EventFallbackOn, Server: "b"}, {Kind: core.EventFallbackOff, Server: "a"},
			},
			breakerSeries("api", 1, "open"),
		},
		"a failover, after which another server answers": {
			core.EventBreaker,
			[]core.Event{
				{Server: "a", Detail: "open"}, {Kind: core.EventFallbackOn, Server: "a"},
				{Server: "b", Detail: "closed"}, {Kind: core.EventFallbackOff, Server: "b"},
			},
			breakerSeries("api", 0, "closed"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMeter(t)
			lim := core.MustNewMemory("api", core.TokenBucket(core.PerHour(1)), m.observe())
			for _, e := range test.events {
				if e.Kind == 0 {
					e.Kind = test.kind
				}
				inside.Core.Emit(t.Context(), lim, e)
			}
			m.want(test.want)
		})
	}
}

// breakerSeries returns the series about the fallback and the breaker of a limiter.
func breakerSeries(limiter string, fallback int64, state string) map[string]int64 {
	all := map[string]int64{"fallback.active{limiter.name=" + limiter + "}": fallback}
	for _, each := range []string{"closed", "open"} {
		all["breaker.state{breaker.state="+each+" limiter.name="+limiter+"}"] = 0
	}
	all["breaker.state{breaker.state="+state+" limiter.name="+limiter+"}"] = 1
	return all
}

// TestDecisions checks the series of decisions. A Peek and a call with an invalid cost are no decisions.
func TestDecisions(t *testing.T) {
	t.Parallel()
	m := newMeter(t)
	lim := core.MustNewMemory("api", core.TokenBucket(core.PerHour(1), core.Burst(2)), core.FixedWindow(core.PerDay(3)), m.observe())
	if res, err := allow(t, lim, 5); err != nil || res.Allowed {
		t.Fatalf("got %+v, %v; want a denial", res, err)
	}
	if _, err := lim.Peek(t.Context(), "user:alice"); err != nil { // a Peek is no decision
		t.Fatal(err)
	}
	if _, err := lim.AllowN(t.Context(), "user:alice", -1); err == nil { // neither is an invalid cost
		t.Fatal("a negative cost returned no error")
	}
	m.want(map[string]int64{
		"decisions{decision.outcome=allowed decision.source=memory limit.name=token-1h limiter.name=api}": 2,
		"decisions{decision.outcome=denied decision.source=memory limit.name=token-1h limiter.name=api}":  3,
		"decision.duration{decision.outcome=allowed decision.source=memory limiter.name=api}":             2,
		"decision.duration{decision.outcome=denied decision.source=memory limiter.name=api}":              3,
	})
}

// TestBan sends so many requests that the key is denied and banned: from then on, its decisions must have the outcome banned.
func TestBan(t *testing.T) {
	t.Parallel()
	m := newMeter(t)
	rdb := redistest.Server(t).Client(t)
	lim := core.MustNew(rdb, "login", core.FixedWindow(core.PerHour(2), core.LimitName("hourly")), core.Ban(time.Hour),
		core.Timeout(time.Minute), m.observe())
	if res, err := allow(t, lim, 5); err != nil || !res.Banned {
		t.Fatalf("got %+v, %v; want a ban", res, err)
	}
	if err := lim.Block(t.Context(), "user:bob", time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := lim.Unblock(t.Context(), "user:bob"); err != nil {
		t.Fatal(err)
	}
	m.want(map[string]int64{
		"decisions{decision.outcome=allowed decision.source=redis limit.name=hourly limiter.name=login}":     2,
		"decisions{decision.outcome=banned decision.source=redis limit.name=hourly limiter.name=login}":      1,
		"decisions{decision.outcome=banned decision.source=deny_cache limit.name=hourly limiter.name=login}": 2,
		"bans{ban.cause=denial limiter.name=login}":                                                          1,
		"bans{ban.cause=block limiter.name=login}":                                                           1,
	}, "decisions", "bans")
}

// TestDuration checks the bounds of the histogram of durations, and in which bucket a duration is counted.
func TestDuration(t *testing.T) {
	t.Parallel()
	m := newMeter(t)
	lim := core.MustNewMemory("api", core.TokenBucket(core.PerHour(1)), m.observe())
	inside.Core.Emit(t.Context(), lim, core.Event{Kind: core.EventDecision, Took: 250 * time.Microsecond})
	histogram, ok := m.collected()["redislimit.decision.duration"].Data.(metricdata.Histogram[float64])
	if !ok || len(histogram.DataPoints) != 1 {
		t.Fatalf("got the histogram %v, want one data point", histogram)
	}
	p := histogram.DataPoints[0]
	if len(p.Bounds) != 16 || p.Bounds[0] != 10e-6 || p.Bounds[15] != 1 || !slices.IsSorted(p.Bounds) {
		t.Errorf("got the bounds %v, want 16 from 10 µs to 1 s", p.Bounds)
	}
	if p.Sum != 250e-6 || p.BucketCounts[4] != 1 {
		t.Errorf("got the sum %v and the buckets %v, want 250 µs in the fifth bucket", p.Sum, p.BucketCounts)
	}
}

// TestRedis checks the series of decisions by Redis, of denials that the deny cache repeats, and of the script, which is loaded once.
func TestRedis(t *testing.T) {
	t.Parallel()
	m := newMeter(t)
	rdb := redistest.Server(t).Client(t)
	lim := core.MustNew(rdb, "api", core.TokenBucket(core.PerHour(2), core.LimitName("hourly")), core.Timeout(time.Minute), m.observe())
	if res, err := allow(t, lim, 5); err != nil || res.Source != core.SourceDenyCache {
		t.Fatalf("got %+v, %v; want a denial by the deny cache", res, err)
	}
	want := breakerSeries("api", 0, "closed")
	maps.Copy(want, map[string]int64{
		"decisions{decision.outcome=allowed decision.source=redis limit.name=hourly limiter.name=api}":     2,
		"decisions{decision.outcome=denied decision.source=redis limit.name=hourly limiter.name=api}":      1,
		"decisions{decision.outcome=denied decision.source=deny_cache limit.name=hourly limiter.name=api}": 2,
		"decision.duration{decision.outcome=allowed decision.source=redis limiter.name=api}":               2,
		"decision.duration{decision.outcome=denied decision.source=redis limiter.name=api}":                1,
		"decision.duration{decision.outcome=denied decision.source=deny_cache limiter.name=api}":           2,
		"script.loads{limiter.name=api}": 1,
	})
	m.want(want)
}

// TestSeveralLimiters makes limiters that share the instruments, with one option or with two, and use them at the same time. An observer of
// the application must be called, too.
func TestSeveralLimiters(t *testing.T) {
	t.Parallel()
	m := newMeter(t)
	var decisions atomic.Int64
	own := core.Observe(func(_ context.Context, e core.Event) {
		if e.Kind == core.EventDecision {
			decisions.Add(1)
		}
	})
	options := []core.Option{m.observe(), m.observe()}
	var all sync.WaitGroup
	for i := range 8 {
		lim := core.MustNew(noRedis(t), "api-"+strconv.Itoa(i%2), core.TokenBucket(core.PerHour(1000)), options[i/4], own)
		all.Go(func() { _, _ = allow(t, lim, 100) })
	}
	all.Wait()
	m.want(map[string]int64{
		"decisions{decision.outcome=allowed decision.source=fallback limit.name=token-1h limiter.name=api-0}": 400,
		"decisions{decision.outcome=allowed decision.source=fallback limit.name=token-1h limiter.name=api-1}": 400,
	}, "decisions")
	if n := decisions.Load(); n != 800 {
		t.Errorf("the application's observer received %d decisions, want 800", n)
	}
}

// TestUncounted checks that decisions by Unlimited and by a limit of 0 have another source than decisions by an outage policy.
func TestUncounted(t *testing.T) {
	t.Parallel()
	m := newMeter(t)
	lim := core.MustNew(noRedis(t), "api", core.TokenBucket(core.PerHour(9)), m.observe())
	inMemory := core.MustNewMemory("memory", core.Unlimited(), m.observe())
	attributes := spanned(t, sdktrace.AlwaysSample(), func(ctx context.Context) {
		for _, limit := range []core.Limit{core.FixedWindow(core.PerDay(0)), core.Unlimited()} {
			if l, err := lim.With(limit); err != nil {
				t.Errorf("With: got error %v, want none", err)
			} else if _, err := l.Allow(ctx, "user:alice"); err != nil {
				t.Errorf("Allow: got error %v, want none", err)
			}
		}
	})
	want := decision{"api", "unlimited", "allowed", "uncounted", math.MaxInt64, math.MaxInt64}.attributes()
	if !maps.Equal(attributes, want) {
		t.Errorf("got the attributes %v, want %v", attributes, want)
	}
	_, _ = allow(t, inMemory, 1)
	m.want(map[string]int64{
		"decisions{decision.outcome=denied decision.source=uncounted limit.name=fixed-1d limiter.name=api}":   1,
		"decisions{decision.outcome=allowed decision.source=uncounted limit.name=unlimited limiter.name=api}": 1,
		"decisions{decision.outcome=allowed decision.source=memory limit.name=unlimited limiter.name=memory}": 1,
	}, "decisions")
}

// TestAllocations checks that an observed decision makes no more allocations than one without an observer.
func TestAllocations(t *testing.T) { // not parallel, because it counts the allocations of the process
	m := newMeter(t)
	allocated := func(option core.Option) float64 {
		lim := core.MustNewMemory("api", core.TokenBucket(core.PerSecond(1e9)), option)
		return testing.AllocsPerRun(1000, func() { _, _ = lim.Allow(t.Context(), "user:alice") })
	}
	if plain, observed := allocated(core.MaxKeys(1<<10)), allocated(m.observe()); observed > plain {
		t.Errorf("an observed decision makes %v allocations, want at most %v, as without an observer", observed, plain)
	}
}

// setGlobal is done by the first run of TestGlobalProvider in this process.
var setGlobal sync.Once

// TestGlobalProvider checks that the global provider may be set after the limiter was made.
func TestGlobalProvider(t *testing.T) { // not parallel, because it sets the global provider
	first := false
	setGlobal.Do(func() { first = true })
	if !first {
		t.Skip("OpenTelemetry connects instruments made earlier to a provider only once in a process")
	}
	lim := core.MustNewMemory("api", core.TokenBucket(core.PerHour(9)), otellimit.Observe(otellimit.MeterProvider(nil)))
	_, _ = allow(t, lim, 1) // not counted, because there is no provider yet
	m := newMeter(t)
	before := otel.GetMeterProvider()
	otel.SetMeterProvider(m.provider)
	t.Cleanup(func() { otel.SetMeterProvider(before) })
	_, _ = allow(t, lim, 2)
	m.want(map[string]int64{
		"decisions{decision.outcome=allowed decision.source=memory limit.name=token-1h limiter.name=api}": 2,
		"decision.duration{decision.outcome=allowed decision.source=memory limiter.name=api}":             2,
	})
}

// refusing is a provider that returns an error for every instrument.
type refusing struct{ noop.MeterProvider }

type refusingMeter struct{ noop.Meter }

var errRefused = errors.New("refused")

func (refusing) Meter(string, ...metric.MeterOption) metric.Meter { return refusingMeter{} }

func (refusingMeter) Int64Counter(string, ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	return nil, errRefused
}

func (refusingMeter) Int64UpDownCounter(string, ...metric.Int64UpDownCounterOption) (metric.Int64UpDownCounter, error) {
	return nil, errRefused
}

func (refusingMeter) Float64Histogram(string, ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	return nil, errRefused
}

// TestRefusedInstruments checks that errors of instruments are passed to the global error handler, and that the limiter decides all the
// same.
func TestRefusedInstruments(t *testing.T) { // not parallel, because it sets the global error handler
	var handled []error
	before := otel.GetErrorHandler()
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { handled = append(handled, err) }))
	t.Cleanup(func() { otel.SetErrorHandler(before) })

	lim := core.MustNew(noRedis(t), "api", core.TokenBucket(core.PerHour(9)), otellimit.Observe(otellimit.MeterProvider(refusing{})))
	if len(handled) != 17 || !errors.Is(handled[0], errRefused) {
		t.Errorf("got the errors %v, want 17: one for each instrument", handled)
	}
	if res, err := allow(t, lim, 4); err != nil || !res.Allowed {
		t.Errorf("without instruments: got %+v, %v; want it admitted", res, err)
	}
}

// noRedis returns a client of an address at which no Redis answers.
func noRedis(tb testing.TB) *redis.Client {
	tb.Helper()
	rdb := redisclient.New(tb, &redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	return rdb
}

// TestNilOption checks the text of the panic for a nil Option.
func TestNilOption(t *testing.T) {
	t.Parallel()
	defer func() {
		if got := fmt.Sprint(recover()); got != "otellimit: a nil Option: leave it out" {
			t.Errorf("got the panic %q, want the advice to leave the option out", got)
		}
	}()
	otellimit.Observe(nil)
}
