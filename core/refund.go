package core

import (
	"context"
	"fmt"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/claim"
)

// A receipt is what it takes to refund a Result.
type receipt struct {
	claim claim.Claim // zero if nothing was charged
	key   string
	n     int64
	id    int64 // by which the algorithm finds the charge
}

// A redisDecision is what a decision in Redis keeps beyond its call, in one
// allocation where there is one limit.
type redisDecision struct {
	set      claim.Set
	observed []algorithm.Observation
	inline   [1]algorithm.Observation
}

func newRedisDecision(owner uint64, limits int) *redisDecision {
	d := &redisDecision{set: claim.Set{Owner: owner}}
	d.observed = d.inline[:]
	if limits > len(d.inline) {
		d.observed = make([]algorithm.Observation, limits)
	}
	return d
}

// Refund gives back what r charged, as far as it still counts: to the window that
// it was charged to and never to a later one, and never above the limit. A Result
// is given back at most once, copies of it included; one that charged nothing, such
// as a denial, gives nothing back.
//
// Errors are [ErrInvalidResult] if r is of another Limiter, the context's own
// error, and [ErrUnavailable] if Redis could not answer. After an error it is not
// known whether r was given back, and it is not given back again.
func (l *Limiter) Refund(ctx context.Context, r Result) error {
	switch owner := r.receipt.claim.Owner(); {
	case ctx.Err() != nil:
		return ctx.Err()
	case owner == 0:
		return nil
	case owner != l.id:
		return fmt.Errorf("%w: it is of limiter %q, not of this %q", ErrInvalidResult, r.Limiter, l.name)
	case !r.receipt.claim.Take():
		return nil
	}
	key, n := r.receipt.key, r.receipt.n
	var ids []int64
	for each := range r.All() {
		ids = append(ids, each.receipt.id)
	}
	if l.memory != nil {
		l.memory.Refund(key, n, ids)
		return nil
	}
	defer l.denials.forget(key)
	if r.Source == SourceFallback && l.fallback != nil {
		l.fallback.store.Refund(key, n, ids)
		return nil
	}
	return l.failure(ctx, l.store.Refund(ctx, key, n, ids))
}
