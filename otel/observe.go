// Package otellimit reports to OpenTelemetry what the limiters of [github.com/redislimit/redislimit/core]
// do: metrics about every decision, outage and change of the circuit breaker, and attributes on the current
// span.
//
//	lim := core.MustNew(rdb, "api", core.TokenBucket(core.PerMinute(100)), otellimit.Observe())
//
// docs/metrics.md lists the instruments and attributes, with queries and alerts. Keys are never attributes,
// because they are personal data and have too many values. The values of attributes are the names of
// limiters and limits and a few fixed words; a span also has the size of the limit and what remains of it.
//
// # A module of its own
//
// The package is a Go module of its own, so that the library's go.mod does not require OpenTelemetry. A
// service that does not import this package can use any version of OpenTelemetry. The versions required
// here are the lowest without a known vulnerability.
package otellimit

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/redislimit/redislimit/core"
)

// scope is the name of this instrumentation.
const scope = "github.com/redislimit/redislimit/otel"

// An Option configures [Observe].
type Option interface{ apply(*config) }

type optionFunc func(*config)

func (f optionFunc) apply(c *config) { f(c) }

type config struct{ provider metric.MeterProvider }

// MeterProvider sets the provider that makes the instruments. The default is the global provider,
// [otel.GetMeterProvider], which can be set before or after this call. A nil provider means the default.
func MeterProvider(provider metric.MeterProvider) Option {
	return optionFunc(func(c *config) {
		if provider != nil {
			c.provider = provider
		}
	})
}

// Observe returns an option for [core.New] and [core.NewMemory] that reports what a Limiter does. You can
// give the same option to several limiters, or make an option for each. In both cases they share the
// instruments, and the attribute redislimit.limiter.name distinguishes the limiters. A limiter can also
// have observers of your own; see [core.Observe].
//
// The attributes of a span describe the last decision made in the span. With stacked limiters, this is the
// decision of the limiter that denied, because no further limiter decides after a denial. If none denied,
// it is the decision of the innermost limiter.
//
// If the provider returns an error for an instrument, Observe reports the error to [otel.Handle] and leaves
// the instrument out. Observe panics if an Option is nil.
func Observe(options ...Option) core.Option {
	c := &config{provider: otel.GetMeterProvider()}
	for _, option := range options {
		if option == nil {
			panic("otellimit: a nil Option: leave it out")
		}
		option.apply(c)
	}
	return core.Observe(newObserver(newInstruments(c.provider.Meter(scope))).observe)
}

// An observer records the events of limiters.
type observer struct {
	*instruments

	decisions decisions
	breakers  breakers
}

func newObserver(i *instruments) *observer {
	o := &observer{instruments: i, breakers: breakers{byLimiter: make(map[string]*breaker)}}
	o.decisions.byKind.Store(&map[kind]*attributes{})
	return o
}

// observe records an event. Limiter is set in all events. The other fields depend on the kind of event:
//
//	Err             the error of a call that failed
//	Result          the decision, the denial that began a ban, or the names of slots
//	Took            how long a decision or a wait took, or how long a ban lasts
//	Cost            how many slots or leased units were added, negative if they were removed; how many
//	                slots were lost, or calls could not be sent
//	Spent           how many units of a lease were spent
//	Detail          the new state of a circuit breaker
func (o *observer) observe(ctx context.Context, e core.Event) {
	switch e.Kind {
	case core.EventDecision:
		o.decided(ctx, e)
	case core.EventOutage:
		o.failures.Add(ctx, 1, metric.WithAttributes(limiterName(e.Limiter), errorType(e.Err)))
	case core.EventFallbackOn, core.EventFallbackOff:
		o.breakers.fallback(ctx, o.instruments, e.Limiter, e.Kind == core.EventFallbackOn)
	case core.EventBreaker:
		o.breakers.change(ctx, o.instruments, e.Limiter, e.Detail)
	case core.EventScriptLoad:
		o.scriptLoads.Add(ctx, 1, metric.WithAttributes(limiterName(e.Limiter)))
	case core.EventKeyFallback:
		o.keyFallbacks.Add(ctx, 1, metric.WithAttributes(limiterName(e.Limiter)))
	case core.EventSlots:
		o.slots.Add(ctx, e.Cost, metric.WithAttributes(limiterName(e.Limiter), limitKey.String(e.Result.LimitName)))
	case core.EventSlotLost:
		o.slotsLost.Add(ctx, e.Cost, metric.WithAttributes(limiterName(e.Limiter)))
	case core.EventLease:
		o.lease(ctx, e)
	case core.EventOverload:
		o.overload.Add(ctx, e.Cost, metric.WithAttributes(limiterName(e.Limiter)))
	case core.EventBan:
		o.ban(ctx, e)
	case core.EventCancel:
		o.canceled.Add(ctx, 1, metric.WithAttributes(limiterName(e.Limiter)))
	case core.EventWait:
		o.waited(ctx, e)
	}
}

// waited records a wait. The event has no error if the caller was admitted.
func (o *observer) waited(ctx context.Context, e core.Event) {
	attributes := []attribute.KeyValue{limiterName(e.Limiter)}
	if e.Err != nil {
		attributes = append(attributes, errorType(e.Err))
	}
	o.waits.Record(ctx, e.Took.Seconds(), metric.WithAttributes(attributes...))
}

// ban counts a ban that has begun.
func (o *observer) ban(ctx context.Context, e core.Event) {
	if e.Took == 0 || e.Err != nil { // a ban was ended by Unblock, or Redis did not answer
		return
	}
	cause := "denial"
	if e.Result.Source == core.SourceNone {
		cause = "block"
	}
	o.bans.Add(ctx, 1, metric.WithAttributes(limiterName(e.Limiter), causeKey.String(cause)))
}

// lease records the beginning of a lease, or its end. Cost is positive only at the beginning.
func (o *observer) lease(ctx context.Context, e core.Event) {
	limiter := metric.WithAttributes(limiterName(e.Limiter))
	o.leased.Add(ctx, e.Cost, limiter)
	if e.Cost > 0 {
		o.leases.Add(ctx, 1, limiter)
		return
	}
	o.leaseSpent.Add(ctx, e.Spent, limiter)
	o.leaseBack.Add(ctx, -e.Cost-e.Spent, limiter)
}
