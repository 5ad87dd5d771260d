package otellimit

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
)

// instruments are what the limiters of one MeterProvider share. Their names follow
// OpenTelemetry's conventions: dots, no units and no "total" in the names, which
// exporters add where their format wants them.
type instruments struct {
	count        metric.Int64Counter
	duration     metric.Float64Histogram
	failures     metric.Int64Counter
	scriptLoads  metric.Int64Counter
	keyFallbacks metric.Int64Counter
	fallback     metric.Int64UpDownCounter
	state        metric.Int64UpDownCounter
}

func newInstruments(m metric.Meter) *instruments {
	return &instruments{
		count: counter(m, "redislimit.decisions", "{decision}",
			"Decisions, by the limit that decided or is tightest."),
		duration: histogram(m, "redislimit.decision.duration", "s",
			"How long decisions took to make."),
		failures: counter(m, "redislimit.redis.failures", "{failure}",
			"Calls that Redis did not answer. Calls not made while the breaker is open are none."),
		scriptLoads: counter(m, "redislimit.script.loads", "{load}",
			"Times that Redis did not have the script and it was sent whole."),
		keyFallbacks: counter(m, "redislimit.key.fallbacks", "{fallback}",
			"Requests without the key that was asked for, counted by their peer's address."),
		fallback: upDownCounter(m, "redislimit.fallback.active",
			"1 while Redis is given up and the outage policy decides, else 0."),
		state: upDownCounter(m, "redislimit.breaker.state",
			"1 for the state that the breaker before Redis is in, 0 for the others."),
	}
}

func counter(m metric.Meter, name, unit, description string) metric.Int64Counter {
	c, err := m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(description))
	if err != nil {
		otel.Handle(err)
		return noop.Int64Counter{}
	}
	return c
}

// histogram has buckets in seconds, from a decision in memory to the default of
// core.Timeout. OpenTelemetry's own are for milliseconds.
func histogram(m metric.Meter, name, unit, description string) metric.Float64Histogram {
	h, err := m.Float64Histogram(name, metric.WithUnit(unit), metric.WithDescription(description),
		metric.WithExplicitBucketBoundaries(
			10e-6, 25e-6, 50e-6, 100e-6, 250e-6, 500e-6,
			1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 250e-3, 500e-3, 1))
	if err != nil {
		otel.Handle(err)
		return noop.Float64Histogram{}
	}
	return h
}

// upDownCounter makes what the conventions have for a state: no gauge, so that the
// sum over processes counts those that are in it.
func upDownCounter(m metric.Meter, name, description string) metric.Int64UpDownCounter {
	c, err := m.Int64UpDownCounter(name, metric.WithUnit("1"), metric.WithDescription(description))
	if err != nil {
		otel.Handle(err)
		return noop.Int64UpDownCounter{}
	}
	return c
}
