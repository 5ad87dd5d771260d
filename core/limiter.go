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
// The Redis key of a limit is prefix:name:{key}:limit. The key is stored as a digest if it is longer
// than 64 bytes, begins with ~, or contains other characters than ASCII letters, digits and
// -_.:/@+=,%|~. [LimitName] explains which changes of a limit keep the units that were used, and which
// start a fresh count. Every Redis key has a TTL.
//
// A cost of 0 charges nothing. It is always allowed, except during a [Ban], and except while Redis
// does not answer a Limiter with [FailClosed]. A request that a Limiter denies changes none of its
// counts, but it can begin a ban. A Limiter is safe for concurrent use.
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

	backend          backend
	decidesUncounted bool           // the backend also decides by limits that count nothing: it knows the bans, or is a test's stub
	overRedis        bool           // made by New, so that the backend is Redis
	denials          *denials.Cache // this and the next four fields are for New alone; nil without the deny cache
	leases           *lease.Leases  // nil without the option Lease
	leasing          *leasing       // decides by leases; nil without the option Lease
	fallback         *inMemory      // nil without FailLocal
	stores           stores

	events   *emitter
	lines    line.Lines
	renewer  *hold.Renewer
	derived  derived
	overload overload
	sampling atomic.Bool // an admission that has only units is being watched, or one was dropped without being ended; see keep
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
// up. Each time costs n, unless Keyed.Cost has set another cost.
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

// Close ends the background work of the Limiter. Probes of the server end, unless another open
// Limiter uses the client. Renewals end, so held slots and units expire: call Close when the work
// has ended. Close also gives leased units back, which takes at most two [Timeout]s: one until Redis
// has granted a lease that this process has just asked for, and one until Redis has taken the units
// back. After that, Close waits at most one Timeout for calls in flight whose callers no longer wait.
// Close does not close the client.
//
// After Close the Limiter still decides, but it leases and renews nothing. If Redis does not answer
// after Close, and no other open Limiter uses the client, nothing is probed in the background: most
// decisions then wait one [Timeout].
//
// The error is [ErrUnavailable] if leased units could not be given back. It says how many units of
// how many keys will be charged although nobody has spent them. Everything is closed even if Close
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

// catchUp makes the renewals that have become due. It does nothing without the option Clock: a timer then
// makes them.
func (l *Limiter) catchUp() {
	if l.family.clock != nil {
		l.family.renewer.RenewDue()
	}
}

// countsAs reports whether a request that l and other both decide is counted twice. That is so if other is
// l, or if l and other come from two calls of New with the same client, Timeout, prefix and name, and have
// limits with the same Redis keys. countsAs reports false for two Limiters that With has derived from one
// Limiter, because they are meant to differ.
func (l *Limiter) countsAs(other *Limiter) bool {
	return l == other || l.family != other.family && l.set.Store != nil && other.set.Store != nil &&
		l.set.Store.SharesKeys(other.set.Store) && slices.Equal(l.set.Keys, other.set.Keys)
}

// failure turns err, an error of the backend, into the error that users see. If err is nil, so is that
// error. If ctx has ended, it is the error of ctx, whatever else went wrong. Otherwise it is
// ErrUnavailable, with one exception: a hook of the client that has panicked or ended its goroutine is a
// mistake in the program and not an outage. If err says that this process is overloaded, and ctx has not
// ended, failure also counts the call.
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
