package otellimit_test

import (
	"context"
	"maps"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/redislimit/redislimit/core"
)

// spanned runs f in a span, and returns the attributes of the span.
func spanned(t *testing.T, sampler sdktrace.Sampler, f func(ctx context.Context)) map[string]any {
	t.Helper()
	exporter := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter), sdktrace.WithSampler(sampler))
	ctx, span := provider.Tracer("test").Start(t.Context(), "GET /")
	f(ctx)
	span.End()
	attributes := map[string]any{}
	for _, s := range exporter.GetSpans() {
		for _, kv := range s.Attributes {
			attributes[string(kv.Key)] = kv.Value.AsInterface()
		}
		if len(s.Events) > 0 || s.Status.Description != "" {
			t.Errorf("the span has events %v and status %v; the observer must set neither", s.Events, s.Status)
		}
	}
	return attributes
}

// A decision contains the values of the attributes that describe a decision in a span.
type decision struct {
	limiter, limit, outcome, source string
	capacity, remaining             int64
}

func (d decision) attributes() map[string]any {
	return map[string]any{
		"redislimit.limiter.name":     d.limiter,
		"redislimit.limit.name":       d.limit,
		"redislimit.limit.capacity":   d.capacity,
		"redislimit.limit.remaining":  d.remaining,
		"redislimit.decision.outcome": d.outcome,
		"redislimit.decision.source":  d.source,
	}
}

// TestSpan checks the attributes that decisions set on the span of a request. If a request passes several limits, the attributes describe
// the last decision.
func TestSpan(t *testing.T) {
	t.Parallel()
	m := newMeter(t)
	byIP := core.MustNewMemory("ip", core.TokenBucket(core.PerHour(10)), m.observe())
	byUser := core.MustNewMemory("user", core.FixedWindow(core.PerDay(2), core.LimitName("daily")), m.observe())
	closed := core.MustNew(noRedis(t), "login", core.TokenBucket(core.PerHour(10)), core.FailClosed(), m.observe())

	decide := func(ctx context.Context, limiters ...*core.Limiter) {
		for _, lim := range limiters {
			if res, err := lim.Allow(ctx, "user:alice"); err != nil || !res.Allowed {
				return // stop here, as stacked middlewares do
			}
		}
	}
	for _, test := range []struct {
		name     string
		limiters []*core.Limiter
		want     map[string]any
	}{
		{"one", []*core.Limiter{byIP}, decision{"ip", "token-1h", "allowed", "memory", 10, 9}.attributes()},
		{"stacked, the innermost", []*core.Limiter{byIP, byUser}, decision{"user", "daily", "allowed", "memory", 2, 1}.attributes()},
		{"stacked, the attributes of the first are replaced", []*core.Limiter{byIP, closed}, decision{"login", "", "error", "none", 0, 0}.attributes()},
		{"stacked, the last unit", []*core.Limiter{byUser, byIP}, decision{"ip", "token-1h", "allowed", "memory", 10, 6}.attributes()},
		{"stacked, the one that denies", []*core.Limiter{byUser, byIP}, decision{"user", "daily", "denied", "memory", 2, 0}.attributes()},
		{"none", nil, map[string]any{}},
	} {
		got := spanned(t, sdktrace.AlwaysSample(), func(ctx context.Context) { decide(ctx, test.limiters...) })
		if !maps.Equal(got, test.want) {
			t.Errorf("%s: got %v, want %v", test.name, got, test.want)
		}
	}
	if got := spanned(t, sdktrace.NeverSample(), func(ctx context.Context) { decide(ctx, byIP) }); len(got) > 0 {
		t.Errorf("a span that is not sampled has the attributes %v, want none", got)
	}
}
