package otellimit

import (
	"context"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// The states of a breaker, as attributes have them.
const (
	closed   = "closed"
	halfOpen = "half_open"
	open     = "open"
)

// breakers keeps what state the breaker of each limiter is in, by the limiter's name.
type breakers struct {
	mu sync.Mutex
	of map[string]*breaker
}

// A breaker is one limiter's. Its attributes are made once: every increment must
// meet its decrement.
type breaker struct {
	state   string
	active  bool // the fallback
	limiter metric.MeasurementOption
	states  map[string]metric.MeasurementOption
}

// know has the limiter's states reported from now on, as a breaker begins.
func (b *breakers) know(ctx context.Context, i *instruments, limiter string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.get(ctx, i, limiter)
}

// change notes that the limiter's breaker went to a state, as core calls it.
func (b *breakers) change(ctx context.Context, i *instruments, limiter, to string) {
	if to == "half-open" {
		to = halfOpen // as attributes are written
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	is := b.get(ctx, i, limiter)
	if _, known := is.states[to]; !known || to == is.state {
		return
	}
	// A breaker never half-opens from closed: that is news from before it closed,
	// told late by another goroutine.
	if to == halfOpen && is.state == closed {
		return
	}
	i.state.Add(ctx, -1, is.states[is.state])
	i.state.Add(ctx, 1, is.states[to])
	is.state = to
}

// fallback notes that the limiter's fallback is on, or off.
func (b *breakers) fallback(ctx context.Context, i *instruments, limiter string, active bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	is := b.get(ctx, i, limiter)
	if active == is.active {
		return
	}
	step := int64(1)
	if !active {
		step = -1
	}
	i.fallback.Add(ctx, step, is.limiter)
	is.active = active
}

// get returns the limiter's breaker; a new one is closed, and all its series exist.
func (b *breakers) get(ctx context.Context, i *instruments, limiter string) *breaker {
	if is, known := b.of[limiter]; known {
		return is
	}
	name := limiterName(limiter)
	is := &breaker{
		state:   closed,
		limiter: metric.WithAttributeSet(attribute.NewSet(name)),
		states:  make(map[string]metric.MeasurementOption, 3),
	}
	for _, state := range []string{closed, halfOpen, open} {
		is.states[state] = metric.WithAttributeSet(attribute.NewSet(name, stateKey.String(state)))
		i.state.Add(ctx, 0, is.states[state])
	}
	i.state.Add(ctx, 1, is.states[closed])
	i.fallback.Add(ctx, 0, is.limiter)
	b.of[limiter] = is
	return is
}
