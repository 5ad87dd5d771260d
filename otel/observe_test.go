package otellimit_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
	otellimit "github.com/redislimit/redislimit/otel"
)

// allow makes n decisions for a key, and returns the last.
func allow(tb testing.TB, lim *core.Limiter, n int) (res core.Result, err error) {
	tb.Helper()
	for range n {
		res, err = lim.Allow(context.WithoutCancel(tb.Context()), "user:alice")
	}
	return res, err
}

func TestInstruments(t *testing.T) {
	t.Parallel()
	m := newMeter(t)
	lim := core.MustNew(noRedis(t), "api", core.TokenBucket(core.PerHour(1)), m.observe())
	_, _ = allow(t, lim, 1)
	lim.Emit(t.Context(), core.Event{Kind: core.EventKeyFallback})
	lim.Emit(t.Context(), core.Event{Kind: core.EventScriptLoad})
	lim.Emit(t.Context(), core.Event{Kind: core.EventSlots, Result: core.Result{Name: "inflight"}, Cost: 1})
	lim.Emit(t.Context(), core.Event{Kind: core.EventSlotLost, Cost: 1})
	lim.Emit(t.Context(), core.Event{Kind: core.EventLease, Cost: 1})
	lim.Emit(t.Context(), core.Event{Kind: core.EventLease, Cost: -1})

	want := map[string]struct {
		unit                 string
		histogram, monotonic bool
	}{
		"redislimit.decisions":            {unit: "{decision}", monotonic: true},
		"redislimit.decision.duration":    {unit: "s", histogram: true},
		"redislimit.redis.failures":       {unit: "{failure}", monotonic: true},
		"redislimit.script.loads":         {unit: "{load}", monotonic: true},
		"redislimit.key.fallbacks":        {unit: "{fallback}", monotonic: true},
		"redislimit.slots.held":           {unit: "{slot}"},
		"redislimit.slots.lost":           {unit: "{slot}", monotonic: true},
		"redislimit.lease.grants":         {unit: "{lease}", monotonic: true},
		"redislimit.lease.units.held":     {unit: "{unit}"},
		"redislimit.lease.units.spent":    {unit: "{unit}", monotonic: true},
		"redislimit.lease.units.returned": {unit: "{unit}", monotonic: true},
		"redislimit.fallback.active":      {unit: "1"},
		"redislimit.breaker.state":        {unit: "1"},
	}
	got := m.collected()
	for name, w := range want {
		metric, there := got[name]
		if !there {
			t.Errorf("%s: not there", name)
			continue
		}
		if metric.Unit != w.unit || metric.Description == "" {
			t.Errorf("%s: unit %q, description %q; want unit %q and some description", name, metric.Unit, metric.Description, w.unit)
		}
		if sum, ok := metric.Data.(metricdata.Sum[int64]); ok == w.histogram || sum.IsMonotonic != w.monotonic {
			t.Errorf("%s: it is a %T, monotonic %t", name, metric.Data, sum.IsMonotonic)
		}
		delete(got, name)
	}
	if len(got) > 0 {
		t.Errorf("and others: %v", got)
	}
}

func TestDecisions(t *testing.T) {
	t.Parallel()
	m := newMeter(t)
	lim, err := core.NewMemory("api", core.TokenBucket(core.PerHour(1), core.Burst(2)), core.FixedWindow(core.PerDay(3)), m.observe())
	if err != nil {
		t.Fatal(err)
	}
	if res, err := allow(t, lim, 5); err != nil || res.Allowed {
		t.Fatal(res, err)
	}
	if _, err := lim.Peek(t.Context(), "user:alice"); err != nil { // a Peek is no decision
		t.Fatal(err)
	}
	if _, err := lim.AllowN(t.Context(), "user:alice", -1); err == nil { // nor is an invalid cost
		t.Fatal("a negative cost is an error")
	}
	m.want([]string{"decisions", "decision.duration", "breaker.state", "fallback.active"}, map[string]int64{
		"decisions{decision.outcome=allowed decision.source=memory limit.name=token-1h limiter.name=api}": 2,
		"decisions{decision.outcome=denied decision.source=memory limit.name=token-1h limiter.name=api}":  3,
		"decision.duration{decision.outcome=allowed decision.source=memory limiter.name=api}":             2,
		"decision.duration{decision.outcome=denied decision.source=memory limiter.name=api}":              3,
	})
}

// TestSlots counts what two limits of a limiter hold, and what is lost.
func TestSlots(t *testing.T) {
	t.Parallel()
	m := newMeter(t)
	lim, err := core.NewMemory("api", core.InFlight(5), core.InFlight(9, core.Name("all")), m.observe())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lim.Close() }()
	first, err := lim.Acquire(t.Context(), "user:alice", 3)
	if err != nil {
		t.Fatal(err)
	}
	second, err := lim.Acquire(t.Context(), "user:bob", 1)
	if err != nil {
		t.Fatal(err)
	}
	_ = second.Release(t.Context())
	_ = second.Release(t.Context())
	lim.Emit(t.Context(), core.Event{Kind: core.EventSlotLost, Cost: 2})
	m.want([]string{"slots.held", "slots.lost"}, map[string]int64{
		"slots.held{limit.name=inflight limiter.name=api}": 3,
		"slots.held{limit.name=all limiter.name=api}":      3,
		"slots.lost{limiter.name=api}":                     2,
	})
	_ = first.Release(t.Context())
}

// TestLeases counts two leases, of which one has ended.
func TestLeases(t *testing.T) {
	t.Parallel()
	m := newMeter(t)
	lim, err := core.NewMemory("api", core.TokenBucket(core.PerHour(1)), m.observe())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []core.Event{{Cost: 30}, {Cost: 50}, {Cost: -30, Spent: 20}} {
		e.Kind = core.EventLease
		lim.Emit(t.Context(), e)
	}
	m.want([]string{"lease.grants", "lease.units.held", "lease.units.spent", "lease.units.returned"}, map[string]int64{
		"lease.grants{limiter.name=api}":         2,
		"lease.units.held{limiter.name=api}":     50,
		"lease.units.spent{limiter.name=api}":    20,
		"lease.units.returned{limiter.name=api}": 10,
	})
}

func TestDuration(t *testing.T) {
	t.Parallel()
	m := newMeter(t)
	lim, err := core.NewMemory("api", core.TokenBucket(core.PerHour(1)), m.observe())
	if err != nil {
		t.Fatal(err)
	}
	lim.Emit(t.Context(), core.Event{Kind: core.EventDecision, Took: 250 * time.Microsecond})
	histogram, ok := m.collected()["redislimit.decision.duration"].Data.(metricdata.Histogram[float64])
	if !ok || len(histogram.DataPoints) != 1 {
		t.Fatalf("got %v", histogram)
	}
	p := histogram.DataPoints[0]
	if len(p.Bounds) != 16 || p.Bounds[0] != 10e-6 || p.Bounds[15] != 1 || !slices.IsSorted(p.Bounds) {
		t.Errorf("bounds %v: want 10 us to 1 s", p.Bounds)
	}
	if p.Sum != 250e-6 || p.BucketCounts[4] != 1 {
		t.Errorf("sum %v, buckets %v: want 250 us, in its bucket", p.Sum, p.BucketCounts)
	}
}

// The deny cache repeats a denial in this process; the script is sent once.
func TestRedis(t *testing.T) {
	t.Parallel()
	m := newMeter(t)
	rdb := redistest.Server(t).Client(t)
	lim := core.MustNew(rdb, "api", core.TokenBucket(core.PerHour(2), core.Name("hourly")), core.Timeout(time.Minute), m.observe())
	if res, err := allow(t, lim, 5); err != nil || res.Source != core.SourceDenyCache {
		t.Fatal(res, err)
	}
	want := map[string]int64{
		"decisions{decision.outcome=allowed decision.source=redis limit.name=hourly limiter.name=api}":     2,
		"decisions{decision.outcome=denied decision.source=redis limit.name=hourly limiter.name=api}":      1,
		"decisions{decision.outcome=denied decision.source=deny_cache limit.name=hourly limiter.name=api}": 2,
		"decision.duration{decision.outcome=allowed decision.source=redis limiter.name=api}":               2,
		"decision.duration{decision.outcome=denied decision.source=redis limiter.name=api}":                1,
		"decision.duration{decision.outcome=denied decision.source=deny_cache limiter.name=api}":           2,
		"breaker.state{breaker.state=closed limiter.name=api}":                                             1,
		"breaker.state{breaker.state=half_open limiter.name=api}":                                          0,
		"breaker.state{breaker.state=open limiter.name=api}":                                               0,
		"fallback.active{limiter.name=api}":                                                                0,
		"script.loads{limiter.name=api}":                                                                   1,
	}
	if got := m.values(); !equal(got, want) {
		t.Errorf("got\n%swant\n%s", listed(got), listed(want))
	}
}

// Limiters share the instruments, with one option or with two. An observer of the
// application's own is called too.
func TestSeveralLimiters(t *testing.T) {
	t.Parallel()
	m := newMeter(t)
	events := 0
	shared := m.observe()
	for name, observe := range map[string]core.Option{"one": shared, "two": shared, "three": m.observe()} {
		lim, err := core.NewMemory(name, core.TokenBucket(core.PerHour(9)), observe,
			core.Observe(func(context.Context, core.Event) { events++ }))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = allow(t, lim, len(name))
	}
	m.want([]string{"decisions"}, map[string]int64{
		"decisions{decision.outcome=allowed decision.source=memory limit.name=token-1h limiter.name=one}":   3,
		"decisions{decision.outcome=allowed decision.source=memory limit.name=token-1h limiter.name=two}":   3,
		"decisions{decision.outcome=allowed decision.source=memory limit.name=token-1h limiter.name=three}": 5,
	})
	if events != 11 {
		t.Errorf("the other observer got %d events, want 11", events)
	}
}

func TestConcurrent(t *testing.T) {
	t.Parallel()
	m := newMeter(t)
	observe := m.observe()
	var all sync.WaitGroup
	for i := range 8 {
		lim := core.MustNew(noRedis(t), "api-"+strconv.Itoa(i%2), core.TokenBucket(core.PerHour(50)), observe)
		all.Go(func() { _, _ = allow(t, lim, 100) })
	}
	all.Wait()
	var sum int64
	for s, v := range m.values() {
		if len(s) > 10 && s[:10] == "decisions{" {
			sum += v
		}
	}
	if sum != 800 {
		t.Errorf("%d decisions recorded, want 800", sum)
	}
}

var setGlobal sync.Once

// The global provider may be set after the limiter is made.
func TestGlobalProvider(t *testing.T) { // not parallel: it sets what is global
	first := false
	setGlobal.Do(func() { first = true })
	if !first {
		t.Skip("OpenTelemetry connects instruments made earlier to a provider only once in a process")
	}
	lim, err := core.NewMemory("api", core.TokenBucket(core.PerHour(9)), otellimit.Observe(otellimit.MeterProvider(nil)))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = allow(t, lim, 1) // not counted: there is no provider yet
	m := newMeter(t)
	before := otel.GetMeterProvider()
	otel.SetMeterProvider(m.provider)
	t.Cleanup(func() { otel.SetMeterProvider(before) })
	_, _ = allow(t, lim, 2)
	m.want([]string{"decisions"}, map[string]int64{
		"decisions{decision.outcome=allowed decision.source=memory limit.name=token-1h limiter.name=api}": 2,
	})
}

// A refusing provider returns an error for every instrument.
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

func TestRefused(t *testing.T) { // not parallel: it sets what is global
	var handled []error
	before := otel.GetErrorHandler()
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { handled = append(handled, err) }))
	t.Cleanup(func() { otel.SetErrorHandler(before) })

	lim := core.MustNew(noRedis(t), "api", core.TokenBucket(core.PerHour(9)), otellimit.Observe(otellimit.MeterProvider(refusing{})))
	if len(handled) != 13 || !errors.Is(handled[0], errRefused) {
		t.Errorf("handled errors %v, want one for each instrument", handled)
	}
	if res, err := allow(t, lim, 4); err != nil || !res.Allowed {
		t.Error("without instruments:", res, err)
	}
}

// noRedis returns a client of an address at which no Redis answers.
func noRedis(tb testing.TB) *redis.Client {
	tb.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	tb.Cleanup(func() { _ = rdb.Close() })
	return rdb
}
