package otellimit

import (
	"context"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// The states of a circuit breaker, as values of the attribute.
const (
	closed   = "closed"
	halfOpen = "half_open"
	open     = "open"
)

// breakers keeps the state of each limiter's circuit breaker.
type breakers struct {
	mu        sync.Mutex
	byLimiter map[string]*breaker // by the limiter's name
}

// A breaker is the reported state of one limiter's circuit breaker. Its attributes
// are made once, so that every increment and its decrement use the same series.
type breaker struct {
	state   string
	active  bool // whether the fallback is on
	limiter metric.MeasurementOption
	states  map[string]metric.MeasurementOption
}

// register reports the limiter's breaker as closed, unless it is already known.
func (b *breakers) register(ctx context.Context, i *instruments, limiter string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.get(ctx, i, limiter)
}

// change records that the limiter's breaker went to a state, named as in
// core.Event.Detail.
func (b *breakers) change(ctx context.Context, i *instruments, limiter, to string) {
	if to == "half-open" {
		to = halfOpen
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	br := b.get(ctx, i, limiter)
	if _, known := br.states[to]; !known || to == br.state {
		return
	}
	// A breaker never goes from closed to half-open. This event is from before it
	// closed, and another goroutine was faster.
	if to == halfOpen && br.state == closed {
		return
	}
	i.state.Add(ctx, -1, br.states[br.state])
	i.state.Add(ctx, 1, br.states[to])
	br.state = to
}

// fallback records that the limiter's fallback is on, or off.
func (b *breakers) fallback(ctx context.Context, i *instruments, limiter string, active bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	br := b.get(ctx, i, limiter)
	if active == br.active {
		return
	}
	step := int64(1)
	if !active {
		step = -1
	}
	i.fallback.Add(ctx, step, br.limiter)
	br.active = active
}

// get returns the limiter's breaker. For a new one it reports the state closed, so
// that all its series exist.
func (b *breakers) get(ctx context.Context, i *instruments, limiter string) *breaker {
	if br, known := b.byLimiter[limiter]; known {
		return br
	}
	name := limiterName(limiter)
	br := &breaker{
		state:   closed,
		limiter: metric.WithAttributeSet(attribute.NewSet(name)),
		states:  make(map[string]metric.MeasurementOption, 3),
	}
	for _, state := range []string{closed, halfOpen, open} {
		br.states[state] = metric.WithAttributeSet(attribute.NewSet(name, stateKey.String(state)))
		i.state.Add(ctx, 0, br.states[state])
	}
	i.state.Add(ctx, 1, br.states[closed])
	i.fallback.Add(ctx, 0, br.limiter)
	b.byLimiter[limiter] = br
	return br
}
