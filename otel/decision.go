package otellimit

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/redislimit/redislimit/core"
)

// A kind of decisions has one set of attributes.
type kind struct {
	limiter, limit string
	outcome        outcome
	source         core.Source
	errorType      string // "" unless the outcome is failed
}

// recorded is a kind's attributes, made once.
type recorded struct {
	count    []metric.AddOption
	duration []metric.RecordOption
	span     []attribute.KeyValue
}

// decisions has the attributes of every kind seen so far. To look one up takes no
// lock and no memory; there are a few for each limit, soon all seen.
type decisions struct {
	seen atomic.Pointer[map[kind]*recorded]
	mu   sync.Mutex // of whoever adds one
}

func (d *decisions) of(k kind) (r *recorded, known bool) {
	if seen := d.seen.Load(); seen != nil {
		r, known = (*seen)[k]
	}
	return r, known
}

func (d *decisions) add(k kind) *recorded {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r, known := d.of(k); known {
		return r
	}
	seen := map[kind]*recorded{}
	if before := d.seen.Load(); before != nil {
		maps.Copy(seen, *before)
	}
	r := k.recorded()
	seen[k] = r
	d.seen.Store(&seen)
	return r
}

// recorded makes the attributes. The histogram does without the limit's name: how
// long a decision takes does not depend on which limit it then describes, and
// buckets are many.
func (k kind) recorded() *recorded {
	base := []attribute.KeyValue{
		limiterName(k.limiter), outcomeKey.String(string(k.outcome)), sourceKey.String(k.source.String()),
	}
	limit := limitKey.String(k.limit)
	r := &recorded{span: append(base[:len(base):len(base)], limit)}
	if k.errorType != "" {
		base = append(base, errorTypeKey.String(k.errorType))
	}
	duration := metric.WithAttributeSet(attribute.NewSet(append([]attribute.KeyValue(nil), base...)...))
	if k.limit != "" { // a decision that failed describes none
		base = append(base, limit)
	}
	r.count = []metric.AddOption{metric.WithAttributeSet(attribute.NewSet(base...))}
	r.duration = []metric.RecordOption{duration}
	return r
}

// decided records a decision.
func (o *observer) decided(ctx context.Context, e core.Event) {
	k := kind{limiter: e.Limiter, limit: e.Result.Name, outcome: outcomeOf(e), source: e.Result.Source}
	if e.Err != nil {
		k.errorType = classify(e.Err)
	}
	r, known := o.decisions.of(k)
	if !known {
		r = o.decisions.add(k)
		if k.source != core.SourceMemory { // there is no breaker before memory
			o.breakers.know(ctx, o.instruments, e.Limiter)
		}
	}
	o.count.Add(ctx, 1, r.count...)
	o.duration.Record(ctx, e.Took.Seconds(), r.duration...)
	// The last decision on a span writes all of its attributes, so that none of
	// another's stay: there is no way to remove one.
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.SetAttributes(r.span...)
		span.SetAttributes(remainingKey.Int64(e.Result.Remaining))
	}
}
