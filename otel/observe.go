// Package otellimit tells OpenTelemetry what the limiters of
// [github.com/redislimit/redislimit/core] do: metrics of every decision, outage
// and change, and attributes on the current span.
//
//	lim := core.MustNew(rdb, "api", core.TokenBucket(core.PerMinute(100)), otellimit.Observe())
//
// docs/metrics.md lists the instruments and attributes, with queries and alerts.
// Never is a key an attribute: keys are personal data, and too many. What is
// one is bounded by the code that makes the limiters: their names and those of
// their limits, and a few words of this package.
//
// # A module of its own
//
// The package is not part of the library's module. There it would be compiled by
// nobody who does not import it either, but the library's go.mod would require
// OpenTelemetry: whoever uses the library, and OpenTelemetry for something else,
// would be raised to at least this version of it and of what it requires. Here
// only those are who import this package. The versions are the lowest without a
// known vulnerability.
package otellimit

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"

	"github.com/redislimit/redislimit/core"
)

// scope names this instrumentation.
const scope = "github.com/redislimit/redislimit/otel"

// An Option configures [Observe].
type Option interface{ apply(*config) }

type optionFunc func(*config)

func (f optionFunc) apply(c *config) { f(c) }

type config struct{ provider metric.MeterProvider }

// MeterProvider sets who makes the instruments. The default is the global one,
// [otel.GetMeterProvider], which may be set before or after; nil means the default.
func MeterProvider(provider metric.MeterProvider) Option {
	return optionFunc(func(c *config) {
		if provider != nil {
			c.provider = provider
		}
	})
}

// Observe returns the option of [core.New] and [core.NewMemory] that reports what
// a Limiter does. Several limiters may be given the same option, or each its own:
// they share the instruments, and the attribute redislimit.limiter.name tells them
// apart. Observers of your own go beside it, see [core.Observe].
//
// The attributes of a span are those of the last decision made on it: of stacked
// limiters the one that denied, for none is asked after that, else the innermost.
//
// An instrument that the provider refuses is reported to [otel.Handle] and left
// out: telemetry never keeps a service from starting.
func Observe(options ...Option) core.Option {
	c := &config{provider: otel.GetMeterProvider()}
	for _, option := range options {
		option.apply(c)
	}
	return core.Observe(newObserver(newInstruments(c.provider.Meter(scope))).observe)
}

// An observer records events.
type observer struct {
	*instruments

	decisions decisions
	breakers  breakers
}

func newObserver(i *instruments) *observer {
	return &observer{instruments: i, breakers: breakers{of: make(map[string]*breaker)}}
}

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
	}
}
