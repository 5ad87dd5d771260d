package otellimit_test

import (
	"testing"

	"go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/exemplar"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/redislimit/redislimit/core"
	otellimit "github.com/redislimit/redislimit/otel"
)

// BenchmarkDecision measures what an observer adds to a decision. Compare with
// "none", the same decision in memory without an observer.
func BenchmarkDecision(b *testing.B) {
	reader := sdkmetric.WithReader(sdkmetric.NewManualReader())
	spans := sdktrace.NewTracerProvider()
	for _, bench := range []struct {
		name   string
		option core.Option
		traced bool
	}{
		{"none", core.Entries(1 << 10), false},
		{"noop", otellimit.Observe(otellimit.MeterProvider(noop.NewMeterProvider())), false},
		{"sdk", otellimit.Observe(otellimit.MeterProvider(sdkmetric.NewMeterProvider(reader))), false},
		{"sdk in a span", otellimit.Observe(otellimit.MeterProvider(sdkmetric.NewMeterProvider(
			sdkmetric.WithReader(sdkmetric.NewManualReader()), sdkmetric.WithExemplarFilter(exemplar.AlwaysOffFilter)))), true},
	} {
		b.Run(bench.name, func(b *testing.B) {
			lim := core.MustNewMemory("api", core.TokenBucket(core.PerSecond(1e9)), bench.option)
			ctx := b.Context()
			if bench.traced {
				traced, span := spans.Tracer("bench").Start(ctx, "GET /")
				defer span.End()
				ctx = traced
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := lim.Allow(ctx, "user:alice"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// An observed decision allocates no more than one without an observer.
func TestAllocations(t *testing.T) { // not parallel: it counts what the process allocates
	m := newMeter(t)
	allocated := func(option core.Option) float64 {
		lim := core.MustNewMemory("api", core.TokenBucket(core.PerSecond(1e9)), option)
		return testing.AllocsPerRun(1000, func() { _, _ = lim.Allow(t.Context(), "user:alice") })
	}
	if plain, observed := allocated(core.Entries(1<<10)), allocated(m.observe()); observed > plain {
		t.Errorf("%v allocations for an observed decision, %v without an observer", observed, plain)
	}
}
