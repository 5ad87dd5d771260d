package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redislimit/redislimit/internal/batch"
	"github.com/redislimit/redislimit/internal/denials"
	"github.com/redislimit/redislimit/internal/hold"
	"github.com/redislimit/redislimit/internal/lease"
	"github.com/redislimit/redislimit/internal/limits"
	"github.com/redislimit/redislimit/internal/line"
	"github.com/redislimit/redislimit/internal/redisstore"
)

// A Limiter controls how often something may happen, for each key separately. Its limits hold
// across all processes that use the same Redis, the same prefix and the same name. Limiters with
// different names share no counts.
//
// The Redis key of a limit is prefix:name:{key}:limit. A digest replaces the key between the braces if the
// key is longer than 64 bytes, begins with ~, or contains other characters than ASCII letters, digits and
// -_.:/@+=,%|~. [LimitName] explains which changes of a limit keep the units that were used, and which
// start a fresh count. Every Redis key has a TTL.
//
// A cost of 0 charges nothing. It is always allowed, with two exceptions: during a [Ban], and, if the
// Limiter has the option [FailClosed], while Redis does not answer. A request that a Limiter denies changes
// none of its counts, but it can begin a ban. A Limiter is safe for concurrent use.
type Limiter struct {
	family *family

	configured []Limit     // as given to New or With
	set        *limits.Set // the same limits, in the form in which they decide
	bansNobody bool        // denials never begin a ban
}

// A family is the part of a Limiter that it shares with the Limiters derived from it by With.
type family struct {
	config

	name string
	now  func() time.Time

	backend backend
	// decidesUncounted says that the backend decides even if the limits count nothing, because the backend
	// knows the bans or is a test's stub.
	decidesUncounted bool
	overRedis        bool           // made by New, so that the backend is Redis
	denials          *denials.Cache // nil without the deny cache; this field and the next four are set only by New
	leases           *lease.Leases  // nil without the option Lease
	leasing          *leasing       // decides by leases; nil without the option Lease
	fallback         *inMemory      // nil without FailLocal
	stores           stores

	events   *emitter
	lines    line.Lines
	renewer  *hold.Renewer
	derived  derived
	overload overload
	// sampling says that an admission without slots is being watched, or that such an admission was dropped
	// without being ended; see keep.
	sampling atomic.Bool
}

// A Keyed is a key together with the Limiter that decides about it. [Limiter.On] returns a Keyed,
// for [AllowAll], [AcquireAll] and [ReserveAll].
type Keyed struct {
	limiter *Limiter
	key     string
	times   int   // how many times the cost of the call is charged
	extra   int64 // a cost that is charged in addition
}

// On returns key, with l, as an argument for [AllowAll], [AcquireAll] and [ReserveAll].
func (l *Limiter) On(key string) Keyed { return Keyed{l, key, 1, 0} }

// Cost returns k with a cost of its own, which replaces the cost of the call.
func (k Keyed) Cost(n int64) Keyed { return Keyed{k.limiter, k.key, 0, n} }

// cost returns the cost of k in a call whose cost is n. If the key was given several times, its costs add
// up. Each of them is n, unless Keyed.Cost has set another cost.
func (k Keyed) cost(n int64) int64 {
	total := k.extra
	for range k.times {
		total = add(total, n)
	}
	return total
}

// add returns a+b, or the largest int64 if the sum is larger.
func add(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// Name returns the name that was given to [New] or [NewMemory].
func (l *Limiter) Name() string { return l.family.name }

// Limits returns the limits, in the order given to [New] or [Limiter.With].
func (l *Limiter) Limits() []Limit { return append([]Limit(nil), l.configured...) }

// Logger returns the logger that was given to the option [Logger], or else the current
// [slog.Default]. The middleware and key functions log there, too.
func (l *Limiter) Logger() *slog.Logger { return l.family.events.log() }

// Close ends the background work of the Limiter. This includes its probes of the server, which go on only
// if another open Limiter has the same client and the same [Timeout]. It also includes renewals, so held
// slots and units expire: call Close when the work has ended.
//
// Close also gives leased units back, which takes at most two [Timeout]s: one until Redis has granted a
// lease that this process has just asked for, and one until Redis has taken the units back. After that,
// Close waits at most one Timeout for calls in flight whose callers no longer wait. Close does not close
// the client.
//
// After Close the Limiter still decides, but it leases nothing, and renews nothing in the background. If
// Redis does not answer after Close, and no other open Limiter has the same client and the same [Timeout],
// nothing is probed in the background: most decisions then wait one [Timeout].
//
// The error is [ErrUnavailable] if leased units could not be given back. It says how many units may be
// charged although nobody has spent them, and for about how many keys. Everything is closed even if Close
// returns an error.
func (l *Limiter) Close() error {
	l.family.renewer.Close()
	lost := l.family.leases.Close()
	l.family.stores.close()
	if lost.Keys == 0 {
		return nil
	}
	return fmt.Errorf("%w: limiter %q: %d leased units could not be given back (keys: %d): they are charged within %v",
		ErrUnavailable, l.family.name, lost.Units, lost.Keys, l.family.leaseDuration+l.family.leaseDuration/6)
}

// catchUp makes the renewals that have become due. It does nothing without the option Clock, because a timer
// usually makes them then.
func (l *Limiter) catchUp() {
	if l.family.clock != nil {
		l.family.renewer.RenewDue()
	}
}

// countsAs reports whether l and other are known to share their counts, so that a request that both decide
// is counted twice. They are known to do so if other is l, or if they come from two calls of New with the
// same client of go-redis, Timeout, prefix and name, and have the same Redis keys in the same order.
// countsAs reports false for two Limiters that With has derived from one Limiter, because they are meant to
// differ.
func (l *Limiter) countsAs(other *Limiter) bool {
	return l == other || l.family != other.family && l.set.Store != nil && other.set.Store != nil &&
		l.set.Store.SharesKeys(other.set.Store) && slices.Equal(l.set.Keys, other.set.Keys)
}

// failure turns err, an error of the backend, into the error that users see. If err is nil, so is that
// error. If ctx has ended, it is the error of ctx, whatever else went wrong. Otherwise it is
// ErrUnavailable, with one exception: if a hook of the client has panicked or ended its goroutine, the error
// does not wrap ErrUnavailable, because this is a mistake in the program and not an outage. If err says that
// this process is overloaded, and ctx has not ended, failure also counts the call.
func (f *family) failure(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, redisstore.ErrQueue), errors.Is(err, redisstore.ErrSentLate):
		f.overload.count(f.events, f.policy.String())
	case errors.As(err, new(*batch.HookError)):
		return fmt.Errorf("redislimit: limiter %q: %w", f.name, err)
	}
	return fmt.Errorf("%w: limiter %q: %w", ErrUnavailable, f.name, err)
}
