package otellimit_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/redis/go-redis/v9"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/redislimit/redislimit/core"
	otellimit "github.com/redislimit/redislimit/otel"
)

func Example() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	lim := core.MustNew(rdb, "api", core.TokenBucket(core.PerMinute(100)), otellimit.Observe())

	_, _ = lim.Allow(context.Background(), "user:alice")
}

// Any number of limiters share the option, and an observer of the application's
// own goes beside it.
func ExampleObserve() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	telemetry := otellimit.Observe()

	_ = core.MustNew(rdb, "api", core.TokenBucket(core.PerMinute(100)), telemetry)
	_ = core.MustNew(rdb, "logins", core.SlidingWindowLog(core.PerMinute(5)), core.FailClosed(), telemetry,
		core.Observe(func(_ context.Context, e core.Event) {
			if e.Kind == core.EventFallbackOn {
				log.Print("logins are answered with 503: ", e.Err)
			}
		}))
}

// A provider other than the global one, here one that is read by hand.
func ExampleMeterProvider() {
	reader := sdkmetric.NewManualReader()
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	lim, err := core.NewMemory("api", core.FixedWindow(core.Per(1, 24*time.Hour)),
		otellimit.Observe(otellimit.MeterProvider(provider)))
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		if _, err := lim.Allow(context.Background(), "user:alice"); err != nil {
			log.Fatal(err)
		}
	}

	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		log.Fatal(err)
	}
	for _, metric := range all.ScopeMetrics[0].Metrics {
		if sum, ok := metric.Data.(metricdata.Sum[int64]); ok {
			for _, point := range sum.DataPoints {
				outcome, _ := point.Attributes.Value("redislimit.decision.outcome")
				fmt.Println(metric.Name, outcome.AsString(), point.Value)
			}
		}
	}
	// Unordered output:
	// redislimit.decisions allowed 1
	// redislimit.decisions denied 2
}
