package core

import (
	"context"
	"fmt"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/claim"
)

// A receipt is what Refund needs to know of a charge.
type receipt struct {
	claim  claim.Claim // zero if nothing was charged
	limits *limitSet
	key    string
	n      int64
	id     algorithm.Ref // the ChargeID; with several limits it is in the Result of each
	held   *reservation  // of Reserve, and where there are slots; or nil
	alive  *liveness     // where there are slots
	lease  *lease        // of which the units were taken, or nil
}

// Refund takes back what was charged for r, as far as it still counts and can be told
// apart: a window or a log gives back to the window that was charged and never to a
// later one (a [SlidingWindowCounter] only while that is the current one), a bucket only
// while nothing was charged after r, and then what has not drained. What came from a lease
// goes back to that, and is kept once it has ended; see [Lease]. Where it is known
// beforehand that a charge may be taken back,
// [Limiter.Reserve] is exact. For a reserved Result Refund is Settle with a cost of 0.
// Slots of [InFlight] are free again.
//
// Each Result is refunded at most once, its copies included. There is nothing to
// refund for one that was not charged, such as a denial: Refund then does nothing.
//
// Errors are [ErrInvalidResult] if r is of another Limiter, the context's own
// error, and [ErrUnavailable] if Redis could not answer. After ErrUnavailable, or a
// context that ended while Redis was asked, it is not known whether r was refunded,
// and another call does nothing.
func (l *Limiter) Refund(ctx context.Context, r Result) error {
	held := r.receipt.held
	if held != nil && held.reserved {
		return l.Settle(ctx, r, 0)
	}
	if taken, err := l.take(ctx, r); !taken {
		return err
	}
	limits, key, n := r.receipt.limits, r.receipt.key, r.receipt.n
	if le := r.receipt.lease; le != nil {
		le.give(n)
		return nil
	}
	var ids []algorithm.Ref
	if held != nil {
		ids, _, _ = l.end(ctx, held, n)
	} else {
		for each := range r.All() {
			ids = append(ids, each.receipt.id)
		}
	}
	if l.stub != nil {
		return l.callStub(ctx, "Refund", key, n)
	}
	defer l.denials.forget(key, limits)
	if local := l.localStore(r.Source); local != nil {
		local.Refund(limits.memory, key, n, ids)
		return nil
	}
	return l.failure(ctx, l.storeOf(limits).Refund(ctx, limits.server, key, n, ids))
}

// take reports whether r is this Limiter's to refund or settle, which it then is no
// longer.
func (l *Limiter) take(ctx context.Context, r Result) (bool, error) {
	if owned, err := l.owns(ctx, r); !owned {
		return false, err
	}
	return r.receipt.claim.Take(), nil
}

// owns reports whether something was charged or held for r by this Limiter. It is an error
// if another did, or if ctx has ended.
func (l *Limiter) owns(ctx context.Context, r Result) (bool, error) {
	switch owner := r.receipt.claim.Owner(); {
	case ctx.Err() != nil:
		return false, ctx.Err()
	case owner == 0:
		return false, nil
	case owner != l.id:
		return false, fmt.Errorf("%w: it is of limiter %q, not of this %q", ErrInvalidResult, r.Limiter, l.name)
	}
	return true, nil
}
