package core

import (
	"context"
	"fmt"

	"github.com/redislimit/redislimit/internal/claim"
)

// A receipt is what Refund needs to know of a charge.
type receipt struct {
	claim claim.Claim // zero if nothing was charged
	key   string
	n     int64
	id    int64 // the ChargeID; with several limits it is in the Result of each
}

// Refund takes back what was charged for r, as far as it still counts: in the window
// that it was charged to and never in a later one, and never above the limit. Each
// Result is refunded at most once, its copies included. There is nothing to refund
// for one that was not charged, such as a denial: Refund then does nothing.
//
// Errors are [ErrInvalidResult] if r is of another Limiter, the context's own
// error, and [ErrUnavailable] if Redis could not answer. After ErrUnavailable, or a
// context that ended while Redis was asked, it is not known whether r was refunded,
// and another call does nothing.
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
