package otellimit

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/redislimit/redislimit/core"
)

// A kind has the values that determine the attributes of a decision.
type kind struct {
	limiter, limit string
	outcome        outcome
	source         core.Source
	errorType      string // "" unless the outcome is failed
}

// attributes are the attributes of one kind of decision. They are made once.
type attributes struct {
	count    []metric.AddOption
	duration []metric.RecordOption
	span     []attribute.KeyValue
}

// decisions caches the attributes of every kind of decision that has occurred. A lookup by get takes no lock
// and allocates nothing. The cache stays small, because there are only a few kinds for each limit.
type decisions struct {
	byKind atomic.Pointer[map[kind]*attributes] // copied on write
	mu     sync.Mutex                           // held by add
}

func (d *decisions) get(k kind) (a *attributes, known bool) {
	a, known = (*d.byKind.Load())[k]
	return a, known
}

func (d *decisions) add(k kind) *attributes {
	d.mu.Lock()
	defer d.mu.Unlock()
	if a, known := d.get(k); known {
		return a
	}
	byKind := maps.Clone(*d.byKind.Load())
	a := k.attributes()
	byKind[k] = a
	d.byKind.Store(&byKind)
	return a
}

// attributes makes the attributes of k. The histogram has no attribute for the limit's name: it has many
// series already, and how long a decision takes does not depend on which limit its Result describes.
func (k kind) attributes() *attributes {
	base := []attribute.KeyValue{
		limiterName(k.limiter), outcomeKey.String(string(k.outcome)), sourceKey.String(k.source.String()),
	}
	limit := limitKey.String(k.limit)
	a := &attributes{span: append(base[:len(base):len(base)], limit)}
	if k.errorType != "" {
		base = append(base, errorTypeKey.String(k.errorType))
	}
	duration := metric.WithAttributeSet(attribute.NewSet(slices.Clone(base)...))
	if k.limit != "" { // a failed decision has no limit
		base = append(base, limit)
	}
	a.count = []metric.AddOption{metric.WithAttributeSet(attribute.NewSet(base...))}
	a.duration = []metric.RecordOption{duration}
	return a
}

// decided records a decision.
func (o *observer) decided(ctx context.Context, e core.Event) {
	k := kind{limiter: e.Limiter, limit: e.Result.LimitName, outcome: outcomeOf(e), source: e.Result.Source}
	if e.Err != nil {
		k.errorType = classify(e.Err)
	}
	a, known := o.decisions.get(k)
	if !known {
		a = o.decisions.add(k)
		if k.source != core.SourceMemory { // a limiter in memory has no breaker
			o.breakers.register(ctx, o.instruments, e.Limiter)
		}
	}
	o.count.Add(ctx, 1, a.count...)
	o.duration.Record(ctx, e.Took.Seconds(), a.duration...)
	// An attribute cannot be removed from a span. Each decision sets all of these attributes, so that the
	// span describes only the last decision.
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.SetAttributes(a.span...)
		span.SetAttributes(capacityKey.Int64(e.Result.Limit), remainingKey.Int64(e.Result.Remaining))
	}
}
