package otellimit

import (
	"context"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// The states of a circuit breaker, as values of the attribute. The Detail of a core.EventBreaker is one of them.
const (
	closed = "closed"
	open   = "open"
)

// breakers keeps the states of the circuit breakers of all limiters.
type breakers struct {
	mu        sync.Mutex
	byLimiter map[string]*breaker // by the limiter's name
}

// A breaker has the states of one limiter's circuit breakers, one for each server that the limiter uses. The
// limiter's state is reported as open while any of these circuit breakers is open. The attributes are made
// once, so that an increment and the matching decrement use the same series.
//
// Servers are counted, because their addresses cannot match the event that ends an outage with the one that
// began it: after a failover, the server that answers has another address.
type breaker struct {
	open    int    // for how many servers the circuit breaker is open
	state   string // open if open is not 0
	down    int    // for how many servers the fallback is on
	limiter metric.MeasurementOption
	states  map[string]metric.MeasurementOption
}

// register reports the limiter's circuit breaker as closed, unless the limiter is already known.
func (b *breakers) register(ctx context.Context, i *instruments, limiter string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.get(ctx, i, limiter)
}

// change records that the circuit breaker of a limiter for one server has changed to the state to, which is
// the Detail of a core.EventBreaker.
func (b *breakers) change(ctx context.Context, i *instruments, limiter, to string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	br := b.get(ctx, i, limiter)
	switch to {
	case open:
		br.open++
	case closed:
		br.open = max(br.open-1, 0)
	}
	now := closed
	if br.open > 0 {
		now = open
	}
	if now == br.state {
		return
	}
	i.state.Add(ctx, -1, br.states[br.state])
	i.state.Add(ctx, 1, br.states[now])
	br.state = now
}

// fallback records that the limiter's fallback for one server is on or off. The limiter's fallback is
// reported as on while it is on for any server.
func (b *breakers) fallback(ctx context.Context, i *instruments, limiter string, active bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	br := b.get(ctx, i, limiter)
	before := br.down > 0
	if active {
		br.down++
	} else {
		br.down = max(br.down-1, 0)
	}
	switch now := br.down > 0; {
	case now && !before:
		i.fallback.Add(ctx, 1, br.limiter)
	case before && !now:
		i.fallback.Add(ctx, -1, br.limiter)
	}
}

// get returns the limiter's breaker. If it is new, get reports it as closed, so that all its series exist. The
// caller holds b.mu.
func (b *breakers) get(ctx context.Context, i *instruments, limiter string) *breaker {
	if br, known := b.byLimiter[limiter]; known {
		return br
	}
	name := limiterName(limiter)
	br := &breaker{
		state:   closed,
		limiter: metric.WithAttributeSet(attribute.NewSet(name)),
		states:  make(map[string]metric.MeasurementOption, 2),
	}
	for _, state := range []string{closed, open} {
		br.states[state] = metric.WithAttributeSet(attribute.NewSet(name, stateKey.String(state)))
		i.state.Add(ctx, 0, br.states[state])
	}
	i.state.Add(ctx, 1, br.states[closed])
	i.fallback.Add(ctx, 0, br.limiter)
	b.byLimiter[limiter] = br
	return br
}
