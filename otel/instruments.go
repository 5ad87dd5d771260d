package otellimit

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
)

// instruments has the instruments that the limiters of one MeterProvider share. Their names follow
// OpenTelemetry's conventions: they have dots, and neither units nor "total", which exporters add if their
// format requires them.
type instruments struct {
	count        metric.Int64Counter
	duration     metric.Float64Histogram
	failures     metric.Int64Counter
	overload     metric.Int64Counter
	bans         metric.Int64Counter
	canceled     metric.Int64Counter
	waits        metric.Float64Histogram
	scriptLoads  metric.Int64Counter
	keyFallbacks metric.Int64Counter
	slots        metric.Int64UpDownCounter
	slotsLost    metric.Int64Counter
	leases       metric.Int64Counter
	leased       metric.Int64UpDownCounter
	leaseSpent   metric.Int64Counter
	leaseBack    metric.Int64Counter
	fallback     metric.Int64UpDownCounter
	state        metric.Int64UpDownCounter
}

func newInstruments(m metric.Meter) *instruments {
	return &instruments{
		count: counter(m, "redislimit.decisions", "{decision}",
			"Decisions, by the limit that denied or is the tightest."),
		// The bounds range from a decision in memory to twice the default of core.Timeout.
		duration: histogram(m, "redislimit.decision.duration", "How long decisions took.",
			10e-6, 25e-6, 50e-6, 100e-6, 250e-6, 500e-6,
			1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 250e-3, 500e-3, 1),
		failures: counter(m, "redislimit.redis.failures", "{failure}",
			"Calls that Redis did not answer. While the circuit breaker is open no call is made, so none is counted."),
		overload: counter(m, "redislimit.overload.calls", "{call}",
			"Calls that this process could not send to Redis in time, because too many wait in it. Redis is not at fault."),
		bans: counter(m, "redislimit.bans", "{ban}",
			"Bans that began in this process, by a denial or by Block."),
		canceled: counter(m, "redislimit.reservations.canceled", "{reservation}",
			"Permits and Reservations that gave back all of their units, because they were canceled or cost nothing."),
		// The last bound is longer than most clients are willing to wait.
		waits: histogram(m, "redislimit.wait.duration", "How long callers waited to be admitted, or until they gave up.",
			1e-3, 5e-3, 25e-3, 100e-3, 250e-3, 500e-3, 1, 2.5, 5, 10, 30, 60, 300),
		scriptLoads: counter(m, "redislimit.script.loads", "{load}",
			"How often Redis did not have the script, so that it was sent whole."),
		keyFallbacks: counter(m, "redislimit.key.fallbacks", "{fallback}",
			"Requests without the key, which were counted by their peer's address."),
		slots: upDownCounter(m, "redislimit.slots.held", "{slot}",
			"Slots of InFlight that this process holds."),
		slotsLost: counter(m, "redislimit.slots.lost", "{slot}",
			"Slots of InFlight that were lost while the work went on: they could not be renewed in time."),
		leases: counter(m, "redislimit.lease.grants", "{lease}",
			"Leases that this process has taken."),
		leased: upDownCounter(m, "redislimit.lease.units.held", "{unit}",
			"Units of the leases that this process has now, spent or not."),
		leaseSpent: counter(m, "redislimit.lease.units.spent", "{unit}",
			"Units of leases that were spent, when their lease ended."),
		leaseBack: counter(m, "redislimit.lease.units.returned", "{unit}",
			"Units of leases that were not spent, when their lease ended."),
		fallback: upDownCounter(m, "redislimit.fallback.active", "1",
			"1 while the circuit breaker is not closed and the outage policy decides, otherwise 0."),
		state: upDownCounter(m, "redislimit.breaker.state", "1",
			"1 for the current state of the circuit breaker, 0 for the others."),
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

// histogram makes a histogram with bounds in seconds. OpenTelemetry's default bounds are for milliseconds.
func histogram(m metric.Meter, name, description string, bounds ...float64) metric.Float64Histogram {
	h, err := m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(description),
		metric.WithExplicitBucketBoundaries(bounds...))
	if err != nil {
		otel.Handle(err)
		return noop.Float64Histogram{}
	}
	return h
}

// upDownCounter makes an instrument for a state or a number that is held, as the conventions recommend.
// Its sum over all processes is how many processes are in the state, or how much all of them hold
// together.
func upDownCounter(m metric.Meter, name, unit, description string) metric.Int64UpDownCounter {
	c, err := m.Int64UpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(description))
	if err != nil {
		otel.Handle(err)
		return noop.Int64UpDownCounter{}
	}
	return c
}
