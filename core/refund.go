package core

import (
	"context"
	"fmt"
	"sync/atomic"
)

// A receipt says what a Result charged, so that it can be given back.
type receipt struct {
	book   *book // nil if nothing was charged
	key    string
	n      int64
	mark   int64 // by which a refund finds the charge
	number uint8 // in the book
}

// A book is what copies of a Result share, so that it is given back only once. It
// is for one charge in Redis, and for bookSize in memory, where an allocation for
// each would take as long as half the decision.
type book struct {
	limiter  *Limiter
	refunded atomic.Uint64 // a bit for each receipt
	memory   *memory       // that charged; nil for Redis
	readings []reading     // what each limit found there before the charge
	room     [1]reading
}

const bookSize = 64

// newBook returns the book of one charge in Redis, whose readings are still to be
// filled in: one allocation for a Limiter of one limit.
func (l *Limiter) newBook() *book {
	b := &book{limiter: l}
	b.readings = b.room[:]
	if len(l.deciders) > len(b.room) {
		b.readings = make([]reading, len(l.deciders))
	}
	return b
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
	b, bit := r.receipt.book, uint64(1)<<r.receipt.number
	switch {
	case b == nil:
		return nil
	case b.limiter != l || r.receipt.key != key:
		return fmt.Errorf("%w: limiter %q, key %.80q", ErrInvalidResult, l.name, key)
	case b.refunded.Or(bit)&bit != 0:
		return nil
	}
	defer l.denials.forget(key)
	if b.memory != nil {
		b.memory.refund(key, r)
		return nil
	}
	return l.failure(ctx, l.store.refund(ctx, key, r.receipt.n, b.readings))
}
