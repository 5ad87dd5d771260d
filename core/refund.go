package core

import (
	"context"
	"fmt"
	"sync/atomic"
)

// A receipt remembers what a Result charged, so that it can be given back once.
type receipt struct {
	limiter  *Limiter
	store    store // that charged
	key      string
	n        int64
	readings []reading // what each limit found before the charge
	room     [1]reading
	refunded atomic.Bool
}

// newReceipt returns a receipt whose readings are still to be filled in: one
// allocation for a Limiter of one limit.
func (l *Limiter) newReceipt(s store, key string, n int64) *receipt {
	r := &receipt{limiter: l, store: s, key: key, n: n}
	r.readings = r.room[:]
	if len(l.deciders) > len(r.room) {
		r.readings = make([]reading, len(l.deciders))
	}
	return r
}

// Refund gives back what r charged to key, as far as it still counts: to the
// window that it was charged to and never to a later one, and never above the
// limit. A Result is given back at most once, copies of it included; one that
// charged nothing, such as a denial, gives nothing back.
//
// Errors are those of [Limiter.AllowN], and [ErrInvalidResult] if r is not of this
// Limiter and key. After an error it is not known whether r was given back, and
// it is not given back again.
func (l *Limiter) Refund(ctx context.Context, key string, r Result) error {
	if err := check(ctx, key, 0); err != nil {
		return err
	}
	switch c := r.receipt; {
	case c == nil:
		return nil
	case c.limiter != l || c.key != key:
		return fmt.Errorf("%w: limiter %q, key %.80q", ErrInvalidResult, l.name, key)
	case c.refunded.Swap(true):
		return nil
	default:
		defer l.denials.forget(key)
		return l.failure(ctx, c.store.refund(ctx, key, c.n, c.readings))
	}
}
