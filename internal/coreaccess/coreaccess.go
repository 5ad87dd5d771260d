// Package coreaccess defines what package core does only for other packages of this module, such as adapters,
// admin, limittest, tests and tools. These packages use package inside, which binds the type parameters of Core
// to the types of package core.
package coreaccess

import (
	"context"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
)

// A Core has the functions of package core that only other packages of this module may call. The type
// parameters are the types of core with the same names: this package cannot name them, because core imports
// it.
type Core[Limiter, Permit, Reservation, Result, Option, Limit, Event any] interface {
	// NewLimit returns a limit of a registered algorithm, even if core has no constructor for it.
	NewLimit(k *algorithm.Kind, count int64, period time.Duration, s LimitSettings) Limit
	// LimitKey returns the end of the Redis key of a limit.
	LimitKey(l Limit) string
	// Simulate returns an option for tests.
	Simulate(s Simulation) Option
	// Driver returns functions with which a test does what the timers of l do otherwise.
	Driver(l *Limiter) Driver
	// NewStub returns a limiter with the given name whose decisions s makes, in place of Redis.
	NewStub(name string, opts []Option, s Stub) (*Limiter, error)
	// Stub returns the Stub that makes the decisions of l, or nil if there is none.
	Stub(l *Limiter) Stub

	// NeedsEnd reports what kinds of limits a limiter has:
	//
	//	slots  a limit has slots, which stay taken until the work ends
	//	queue  a limit has a queue, in which a place may be given back
	//	units  a limit can charge more or fewer units when the work ends
	NeedsEnd(l *Limiter) (slots, queue, units bool)
	// WithoutBans returns a limiter that decides like l, but whose denials do not ban. Do not call With on it: the
	// denials of what With returns would ban.
	WithoutBans(l *Limiter) *Limiter
	// AcquireUpTo decides a request that may wait, and sets res. If it returns a nil Permit, there is nothing
	// to end.
	AcquireUpTo(ctx context.Context, l *Limiter, w Waiting, res *Result) (*Permit, error)
	// ReserveUpTo is like AcquireUpTo, for a request whose true cost is known only when its work is done.
	ReserveUpTo(ctx context.Context, l *Limiter, w Waiting, res *Result) (*Reservation, error)
	// SettleLater is like Reservation.Settle, but may return before Redis has replied. If actual is
	// Canceled, it is like Reservation.Cancel instead.
	SettleLater(ctx context.Context, r *Reservation, actual int64) error
	// Emit passes an Event of an adapter to the observers of l, with the name of l as its Limiter.
	Emit(ctx context.Context, l *Limiter, e Event)
	// CountsAs reports whether a request that l and other both decide is counted twice: they are one
	// limiter, or two that were made separately and share their counts in Redis. It reports false for different
	// limiters that With has derived from one limiter.
	CountsAs(l, other *Limiter) bool
	// WarnOnce logs a warning, unless l has logged the same message before. A limiter and all limiters
	// that With has derived from it count as one limiter here.
	WarnOnce(ctx context.Context, l *Limiter, message string)
	// ErrorMinutely logs an error, at most once per minute for each message. It also logs for how many
	// requests it was called with this message since the message was last logged.
	ErrorMinutely(ctx context.Context, l *Limiter, message string, err error)

	// Inspect returns what package admin shows of a limiter.
	Inspect(l *Limiter) Inspection
	// HeldOf returns how many units of key are held: a map from the name of each limit to its held units.
	// The map is empty for a stub, and for limits that count nothing. While the key is banned, HeldOf returns 0
	// for each limit, whatever is held. HeldOf may call Redis.
	HeldOf(ctx context.Context, l *Limiter, key string) (map[string]int64, error)
	// Held returns what a Permit or a Reservation of one key holds; the other argument must be nil. n is how many
	// units were admitted. expiries has the field B of the handle of each limit: for held units, the instant at
	// which they expire. If there is nothing to end, expiries is empty and n is 0.
	Held(p *Permit, r *Reservation) (expiries []int64, n int64)
	// Scripts returns the texts of the scripts of a limiter that uses Redis: for a single call, for a batch,
	// and for a batch of calls by limits with different numbers.
	Scripts(l *Limiter) (call, batch, mixed string)
}

// Registered is the Core that package core provides. Package core sets Registered when it is initialized.
var Registered any

// LimitSettings are the settings of a core.Limit that its options set. Zero values are the defaults.
type LimitSettings struct {
	Burst   int64
	Aligned bool
	Name    string
}

// A Simulation makes a Limiter use the clocks of a test, so that a test can simulate several processes
// whose clocks differ. A field that is nil or 0 changes nothing. If several Simulations are given, the
// last one that sets a field decides about that field.
type Simulation struct {
	// Wall is the wall clock of the process, by which a Limiter over Redis finds calendar windows.
	Wall func() time.Time
	// Holds is the clock by which the process renews held units and slots, and notices that they have
	// expired.
	Holds func() time.Time
	// Leases returns the two clocks by which leases end. If it is set, the Limiter has no timers for leases
	// and renewals: the test calls the functions of Driver instead. (A decision still closes the lease of
	// its key if the lease is over or has too few units, and Reset closes the leases of its key.) Calls
	// that the Limiter would otherwise send at the same time are sent one after the other.
	Leases func() (wall, mono time.Duration)
	// HotDecisions is how many decisions on a key, within the duration of a lease, make it hot, so that
	// its units are leased. LeaseShare is the share of the remaining units that a lease may take: 3 means
	// a third.
	HotDecisions, LeaseShare int64
}

// A Driver has functions that do at once what a Limiter otherwise does in the background, and functions
// that show its leases. All functions except Renew are only for a Limiter with the option Lease.
type Driver struct {
	// Renew renews at once everything that the limiter keeps from expiring.
	Renew func()
	// CloseOld closes and settles the leases that are due to be closed.
	CloseOld func()
	// Open returns how many leases are open.
	Open func() int
	// Latest returns a value that identifies the latest lease of a key, even if this lease is closed.
	Latest func(key string) any
}

// Canceled is the cost that makes SettleLater cancel. The difference from a cost of 0 matters if several
// keys were reserved together: a settlement of 0 still charges the keys that have a cost of their own (see
// core.Keyed.Cost), but a cancellation charges no key.
const Canceled = -1

// An Inspection contains what package admin shows about a *core.Limiter, in addition to what the exported
// methods of the Limiter return.
type Inspection struct {
	Policy  string // the outage policy; empty for a limiter without Redis
	Bans    bool   // whether the limiter has the option Ban
	Servers []ServerState
}

// A ServerState is what this process knows about a server.
type ServerState struct {
	Addr  string
	State string    // "up", "down", or "doubted": a call failed, and probes are finding out whether the server answers
	Since time.Time // since when the server is in this state; zero if it is up
	Cause error     // why the server is not up; nil if it is up
}

// A Waiting describes a request that may wait to be admitted.
type Waiting struct {
	Key  string
	N    int64
	UpTo time.Duration // how long the request may wait
	Most int           // how many such requests may wait for the limiter at a time, in the lines of all keys together; 0: no bound
}

// A WrongLimitError is the error of core.Limiter.With for limits that are not allowed, and of core.AllowAll
// and similar functions for limits that cannot decide together.
type WrongLimitError struct{ Err error }

func (e *WrongLimitError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *WrongLimitError) Unwrap() error { return e.Err }
