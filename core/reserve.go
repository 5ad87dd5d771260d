package core

import (
	"context"
	"fmt"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/memory"
)

// maxActual bounds the cost that Settle charges.
const maxActual = 1_000_000_000

// Reserve decides as [Limiter.AllowN] does on n units, whose true cost is known only
// later: n is an estimate. What is admitted is held, which counts like a charge for
// all other decisions, and [Limiter.Settle] charges what it really cost:
//
//	res, err := lim.Reserve(ctx, key, 500)
//	// ... if res.Allowed: do it
//	err = lim.Settle(ctx, res, 7312)
//
// Units are held for a while only; see [Hold]. If they are not settled by then,
// because the process died or was slow, they are charged: what is admitted is to be
// used before that. While units are held, the RetryAfter and ResetAfter of others are
// estimates: as if what is held had been charged.
//
// With Redis every process that uses the limiter must know holds, which began with
// this version: upgrade all of them before the first call. A [LeakyBucket] has places
// in a queue and holds nothing: there n units are charged.
//
// Errors are those of AllowN. After [ErrUnavailable], or a context that ended while
// Redis was asked, n units may be held, and are charged when the hold expires.
func (l *Limiter) Reserve(ctx context.Context, key string, n int64) (res Result, err error) {
	err = l.decide(ctx, &res, key, n, algorithm.OpReserve)
	if n == 0 && err == nil && res.Source != SourceNone { // nothing is held, and what it cost is charged
		held := newReservation(l.id, l.limitsOf(res.Source), res.Source, algorithm.OpReserve)
		held.slots = false
		res.receipt = held.receipt(key, 0)
	}
	return res, err
}

// localStore returns what a decision of a source was made by in this process: nil if it was
// made in Redis.
func (f *family) localStore(source Source) *memory.Store {
	if source == SourceFallback && f.fallback != nil {
		return f.fallback.store
	}
	return f.memory
}

// limitsOf returns the limits that a decision of a source was made by.
func (l *Limiter) limitsOf(source Source) *limitSet {
	if source == SourceFallback {
		return l.limits.fallback
	}
	return l.limits
}

// Settle charges what r really cost, from 0 to 1e9 units, in place of what
// [Limiter.Reserve] held for it. More than was held is charged, too, whether it fits or
// not: the key is denied until that is paid. Of a [LeakyBucket] 0 takes the charge
// back, and any other cost keeps it.
//
// Each Result is settled once, its copies included; another call does nothing. Nor does
// one for a denial. If the hold has expired, only what exceeds it is charged. Slots of
// [InFlight] are free again: the work has ended.
//
// Errors are [ErrInvalidCost], [ErrInvalidResult] if r was not reserved or is of
// another Limiter, the context's own error, and [ErrUnavailable] if Redis could
// not answer. It is sent once: after ErrUnavailable, or a context that ended while
// Redis was asked, the units may stay held, and are then charged when the hold expires.
func (l *Limiter) Settle(ctx context.Context, r Result, actual int64) error {
	if actual < 0 || actual > maxActual {
		return fmt.Errorf("%w: it is %d, allowed is 0 to %d", ErrInvalidCost, actual, maxActual)
	}
	held := r.receipt.held
	if (held == nil || !held.reserved) && r.receipt.claim.Owner() != 0 {
		return fmt.Errorf("%w: it was not reserved: use Refund", ErrInvalidResult)
	}
	if taken, err := l.take(ctx, r); !taken {
		return err
	}
	limits, key, n := r.receipt.limits, r.receipt.key, r.receipt.n
	if held.settleInLease(n, actual) {
		l.renewer.forget(held)
		return nil
	}
	refs, known, err := l.end(ctx, held, n)
	if err != nil {
		return err
	}
	if l.stub != nil {
		return l.callStub(ctx, "Settle", key, actual)
	}
	if !known { // what is held is charged when it expires
		if limits.slots {
			_ = l.release(ctx, r, refs) // else they expire soon
		}
		n, actual, refs = 0, max(0, actual-n), make([]algorithm.Ref, len(limits.members))
	}
	defer l.denials.forget(key, limits)
	if local := l.localStore(r.Source); local != nil {
		local.Settle(limits.memory, key, n, actual, refs)
		return nil
	}
	return l.failure(ctx, l.storeOf(limits).Settle(ctx, limits.server, key, n, actual, refs))
}

// A HoldOption sets for how long units are held; see [Hold].
type HoldOption interface {
	Option
	InFlightOption
}

type holdOption time.Duration

// The bounds of Hold, and the default of InFlight.
const (
	minHold         = 10 * time.Millisecond
	maxHold         = time.Hour
	defaultSlotHold = 10 * time.Second
)

// Hold sets for how long units are held, from 10 milliseconds to 1 hour.
//
// As an option of a [Limiter] it is for how long [Limiter.Reserve] holds units that are
// not settled: a sixth longer at most. The default of each limit is the time in which it
// comes back whole, at least a second and at most 60 s. A longer hold suits work that
// takes longer; a shorter one gives units sooner to others when a process has died.
//
// As an option of [InFlight] it is for how long a slot is held that is not renewed: for
// so long a process that died withholds its slots, and for so long Redis may be away
// until those who work lose theirs. Work may take longer. The default is 10 s.
func Hold(d time.Duration) HoldOption { return holdOption(d) }

func (o holdOption) valid() bool { return time.Duration(o) >= minHold && time.Duration(o) <= maxHold }

func (o holdOption) text() string { return fmt.Sprintf("Hold(%v)", time.Duration(o)) }

func (o holdOption) apply(c *config) {
	setting{
		"hold", o.text(), o.valid(), fmt.Sprintf("allowed is %v to %v", minHold, maxHold),
		func(c *config) { c.hold = time.Duration(o) },
	}.apply(c)
}

func (o holdOption) inFlight(l *Limit) {
	if !o.valid() {
		l.fail(fmt.Sprintf("%s: allowed is %v to %v", o.text(), minHold, maxHold))
	}
	l.hold = time.Duration(o)
}
