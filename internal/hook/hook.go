// Package hook defines what package core does only for other packages of this module: adapters, admin,
// limittest, suites and tools. They call it through package inside, which binds the type parameters to the
// types of core.
package hook

import (
	"context"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
)

// A Core is package core as the rest of this module sees it. The type parameters are core's types of the
// same names, which this package cannot name because core imports it.
type Core[Limiter, Reservation, Result, Option, Limit, Event any] interface {
	// NewLimit returns a limit of a registered algorithm, even if core has no constructor for it.
	NewLimit(k *algorithm.Kind, count int64, period time.Duration, s LimitSettings) Limit
	// LimitKey returns the end of the Redis key of a limit.
	LimitKey(l Limit) string
	// Wall returns an option for core.New by which the limiter uses the clock now to find the windows of a
	// calendar. It is for suites that also control the clock of Redis.
	Wall(now func() time.Time) Option
	// Driver returns functions by which a test replaces a limiter's clocks and timers.
	Driver(l *Limiter) Driver
	// NewStub returns a limiter called name, for which s answers.
	NewStub(name string, opts []Option, s Stub) (*Limiter, error)
	// Stub returns the Stub that answers for a limiter, or nil.
	Stub(l *Limiter) Stub

	// NeedsEnd reports whether a limiter has limits of these kinds: with slots, which stay taken until the
	// work ends; with a queue, in which a place may be given back; and with units, of which more or fewer
	// may be charged when the work ends.
	NeedsEnd(l *Limiter) (slots, queue, units bool)
	// Looking returns a limiter that decides like l, but whose denials do not ban.
	Looking(l *Limiter) *Limiter
	// WaitUpTo decides a request that may wait, and sets res. The Reservation is nil if there is nothing to
	// end.
	WaitUpTo(ctx context.Context, l *Limiter, w Waiting, res *Result) (*Reservation, error)
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
	// Held returns until when each limit holds units for a reservation, and how many units were charged or
	// reserved. expiries is empty if nothing is held.
	Held(r *Reservation) (expiries []int64, n int64)
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

// A Driver lets a test replace the clocks and timers of a core.Limiter.
type Driver struct {
	// Renew renews at once everything that the limiter keeps from expiring.
	Renew func()
	// Clock makes the renewals use a test's clock.
	Clock func(now func() time.Time)
	// Drive makes leases use a test's clocks, and stops closing and renewing them in the background.
	// Renewals and settlements are then sent one after the other.
	Drive func(wall, mono func() time.Duration)
	// Heat sets after how many requests a key is hot, and which share of the remaining units a lease takes:
	// 1/share.
	Heat func(asks, share int64)
	// CloseOld closes the leases that are due to be closed.
	CloseOld func()
	// Abandon forgets all leases, as if the process had died.
	Abandon func()
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
	Key     string
	N       int64
	Reserve bool          // whether the units are reserved, and settled when their true cost is known
	UpTo    time.Duration // how long the request may wait
	Most    int           // how many requests may wait at a time
}

// A WrongLimitError is the error of core.Limiter.With, and of core.AllowAll if limits cannot decide
// together.
type WrongLimitError struct{ Err error }

func (e *WrongLimitError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *WrongLimitError) Unwrap() error { return e.Err }
