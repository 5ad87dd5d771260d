// Package coreaccess defines what package core does only for other packages of this module: adapters, admin,
// limittest, suites and tools. They call it through package inside, which binds the type parameters to the
// types of core.
package coreaccess

import (
	"context"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
)

// A Core is package core as the rest of this module sees it. The type parameters are core's types of the
// same names, which this package cannot name because core imports it.
type Core[Limiter, Permit, Reservation, Result, Option, Limit, Event any] interface {
	// NewLimit returns a limit of a registered algorithm, even if core has no constructor for it.
	NewLimit(k *algorithm.Kind, count int64, period time.Duration, s LimitSettings) Limit
	// LimitKey returns the end of the Redis key of a limit.
	LimitKey(l Limit) string
	// Simulate returns an option for tests.
	Simulate(s Simulation) Option
	// Driver returns functions by which a test does what a limiter's timers do.
	Driver(l *Limiter) Driver
	// NewStub returns a limiter called name, for which s answers.
	NewStub(name string, opts []Option, s Stub) (*Limiter, error)
	// Stub returns the Stub that answers for a limiter, or nil.
	Stub(l *Limiter) Stub

	// NeedsEnd reports whether a limiter has limits of these kinds: with slots, which stay taken until the
	// work ends; with a queue, in which a place may be given back; and with units, of which more or fewer
	// may be charged when the work ends.
	NeedsEnd(l *Limiter) (slots, queue, units bool)
	// WithoutBans returns a limiter that decides like l, but whose denials do not ban.
	WithoutBans(l *Limiter) *Limiter
	// AcquireUpTo decides a request that may wait, and sets res. The Permit is nil if there is nothing to
	// end.
	AcquireUpTo(ctx context.Context, l *Limiter, w Waiting, res *Result) (*Permit, error)
	// ReserveUpTo is AcquireUpTo for a request whose true cost is known only later.
	ReserveUpTo(ctx context.Context, l *Limiter, w Waiting, res *Result) (*Reservation, error)
	// SettleLater is like Reservation.Settle, but may return before Redis has replied.
	SettleLater(ctx context.Context, r *Reservation, actual int64) error
	// Emit notifies the observers of a limiter of an adapter's Event, and sets the Event's limiter name.
	Emit(ctx context.Context, l *Limiter, e Event)
	// CountsAs reports whether two limiters share their counts.
	CountsAs(l, other *Limiter) bool
	// WarnOnce logs a warning. The limiter, and those that share its state, log each message once.
	WarnOnce(ctx context.Context, l *Limiter, message string)
	// ErrorMinutely logs an error at most once per minute for each message, with the number of requests
	// that had an error with this message.
	ErrorMinutely(ctx context.Context, l *Limiter, message string, err error)

	// Inspect returns what package admin shows of a limiter.
	Inspect(l *Limiter) Inspection
	// HeldOf returns how many units are held for a key, by the name of each limit that holds any. It may
	// call Redis.
	HeldOf(ctx context.Context, l *Limiter, key string) (map[string]int64, error)
	// Held returns until when each limit holds units for a Permit or a Reservation, one of which is nil,
	// and how many units were charged or reserved. expiries is empty if nothing is held.
	Held(p *Permit, r *Reservation) (expiries []int64, n int64)
	// Scripts returns the scripts of a limiter that uses Redis: for a single call, for a batch, and for a
	// batch of calls by limits with different numbers.
	Scripts(l *Limiter) (call, batch, mixed string)
}

// Registered is the Core that package core provides. Core sets it during its initialization.
var Registered any

// LimitSettings are the settings of a core.Limit that its options set. Zero values are the defaults.
type LimitSettings struct {
	Burst   int64
	Aligned bool
	Name    string
}

// A Simulation runs a Limiter by the clocks of a test, so that one test can have several processes
// whose clocks differ. A field that is nil or 0 leaves the Limiter as it is. If several Simulations
// are given, each field is that of the last one that sets it.
type Simulation struct {
	// Wall is the wall clock of the process, by which a Limiter over Redis finds calendar windows.
	Wall func() time.Time
	// Holds is the clock of the process by which held units and slots are renewed and expire.
	Holds func() time.Time
	// Leases are the clocks by which leases end. With them, nothing happens in the background:
	// nothing is renewed or closed until the test calls the functions of Driver, and what the
	// Limiter otherwise sends at the same time is sent one after the other.
	Leases func() (wall, mono time.Duration)
	// HotDecisions is how many decisions on a key make it hot, and LeaseShare the share of the
	// remaining units that a lease takes (3 means a third).
	HotDecisions, LeaseShare int64
}

// A Driver has what a Limiter does in the background, for tests that do it themselves, and shows
// the leases.
type Driver struct {
	// Renew renews at once everything that the limiter keeps from expiring.
	Renew func()
	// CloseOld closes the leases that are due to be closed.
	CloseOld func()
	// Open returns how many leases are open.
	Open func() int
	// Latest returns a value that identifies the latest lease of a key.
	Latest func(key string) any
}

// Canceled is the cost that makes SettleLater cancel. It differs from a cost of 0 if several keys were
// reserved together: keys with a cost of their own (see core.Keyed.Cost) are charged by a settlement of 0,
// but not by a cancellation.
const Canceled = -1

// An Inspection is the part of what package admin shows of a *core.Limiter that only admin needs.
type Inspection struct {
	Policy  string // the outage policy; empty for a limiter without Redis
	Bans    bool   // whether the limiter has the option Ban
	Servers []ServerState
}

// A ServerState is what this process knows about a server.
type ServerState struct {
	Addr  string
	State string // "up", "down", or "doubted": a call failed, and probes are finding out why
	Since time.Time
	Cause error // why the server is not up
}

// A Waiting describes a request that may wait.
type Waiting struct {
	Key  string
	N    int64
	UpTo time.Duration // how long the request may wait
	Most int           // how many requests may wait at a time
}

// A WrongLimitError is the error of core.Limiter.With, and of core.AllowAll if limits cannot decide
// together.
type WrongLimitError struct{ Err error }

func (e *WrongLimitError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *WrongLimitError) Unwrap() error { return e.Err }
