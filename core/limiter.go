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

// A Limiter controls how often things may happen, for each key on its own. Its limits hold across
// all processes that use the same Redis, the same prefix and the same name; Limiters of different
// names share nothing.
//
// Keys are stored in Redis as prefix:name:{key}:limit; a key that is longer than 64 bytes or not
// plain ASCII is stored as a digest. [LimitName] says which changes of a limit keep its count, and which
// start a fresh one. Every Redis key has a TTL.
//
// A cost of 0 is always allowed, but during a [Ban], and charges nothing. A denied request changes
// nothing, but with that option. A Limiter is safe for concurrent use.
type Limiter struct {
	family *family

	configured []Limit     // as given
	set        *limits.Set // the same, ready to decide
	bansNobody bool        // its denials ban nobody
}

// A family is what a Limiter shares with those that With derives from it.
type family struct {
	config

	name string
	now  func() time.Time

	backend   backend
	mustAsk   bool           // the backend is also asked about limits that count nothing: it knows of bans, or is a test's stub
	overRedis bool           // it is of New, and has what follows
	denials   *denials.Cache // or nil
	leases    *lease.Leases  // with Lease, or nil
	leasing   *leasing       // decides by them
	fallback  *inMemory      // with FailLocal, or nil
	stores    stores

	events   *emitter
	lines    line.Lines
	renewer  *hold.Renewer
	derived  derived
	overload overload
	sampling atomic.Bool // one admission of those that have nothing to renew is watched, or was dropped
}

// A Keyed is a key of a Limiter, as [Limiter.On] returns it for [AllowAll] and its kin.
type Keyed struct {
	limiter *Limiter
	key     string
	times   int   // how many times it costs what the call says
	own     int64 // what it costs in addition
}

// On returns key as one of those that [AllowAll], [AcquireAll] and [ReserveAll] decide about.
func (l *Limiter) On(key string) Keyed { return Keyed{l, key, 1, 0} }

// Cost returns k with a cost of its own, in place of that of the whole call.
func (k Keyed) Cost(n int64) Keyed { return Keyed{k.limiter, k.key, 0, n} }

// cost returns what k costs in a call with a cost of n.
func (k Keyed) cost(n int64) int64 {
	total := k.own
	for range k.times {
		total = add(total, n)
	}
	return total
}

// add returns a+b, or the largest cost there is.
func add(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// Name returns the name given to [New].
func (l *Limiter) Name() string { return l.family.name }

// Limits returns the limits, in the order given to [New] or [Limiter.With].
func (l *Limiter) Limits() []Limit { return append([]Limit(nil), l.configured...) }

// Logger returns the logger given to the option [Logger], or else [slog.Default] as it is at the
// time. The middleware and key functions log there, too.
func (l *Limiter) Logger() *slog.Logger { return l.family.events.log() }

// Close ends the background work of the Limiter: probes, unless another open Limiter uses the
// client; renewals, so that held slots and units expire (call it when the work has ended); and
// leases, which are given back first. It waits a [Timeout] at most for these, and one for what
// callers left behind. It does not close the client. Decisions after it are as before, but nothing
// is leased and nothing renewed, and in an outage each waits for Redis by itself.
//
// The error is [ErrUnavailable] if leases could not be given back: it says how many units of how
// many keys are charged though nobody has spent them. All is closed all the same.
func (l *Limiter) Close() error {
	l.family.renewer.Close()
	lost := l.family.leases.Close()
	l.family.stores.close()
	if lost.Keys == 0 {
		return nil
	}
	return fmt.Errorf("%w: limiter %q: %d leased units could not be given back (keys: %d): they are charged within %v",
		ErrUnavailable, l.family.name, lost.Units, lost.Keys, l.family.lease+l.family.lease/6)
}

// catchUp renews what the option Clock has made due since the last call.
func (l *Limiter) catchUp() {
	if l.family.clock != nil {
		l.family.renewer.Look()
	}
}

// countsAs reports whether other is l, or comes from another New with the same client, Timeout,
// prefix and name, and has limits with the same Redis keys. Two that With has derived from one New
// are meant to differ.
func (l *Limiter) countsAs(other *Limiter) bool {
	return l == other || l.family != other.family && l.set.Store != nil && other.set.Store != nil &&
		l.set.Store.SharesKeys(other.set.Store) && slices.Equal(l.set.Keys, other.set.Keys)
}

// failure counts an overload, and returns an error of the store as users see it: ErrUnavailable, or
// the error of the caller's own context if that has ended, whatever else was wrong. A hook of the client
// that panicked is a mistake in the program, and not an outage.
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
