// Package hook has the types of what package core does for this module alone: for its adapters,
// admin, limittest, suites and tools. They reach it by package inside, which knows core's own
// types.
package hook

import (
	"context"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
)

// A Core is package core as this module sees it. The types are core's own of these names, which
// this package cannot name: core imports it.
type Core[Limiter, Permit, Reservation, Result, Option, Limit, Event any] interface {
	// NewLimit returns the limit of a registered algorithm, whether it has a constructor in core or
	// not.
	NewLimit(k *algorithm.Kind, count int64, period time.Duration, s LimitSettings) Limit
	// LimitKey returns what the Redis key of a limit ends with.
	LimitKey(l Limit) string
	// Simulate returns an option for tests.
	Simulate(s Simulation) Option
	// Driver returns what tests do in place of a limiter's timers.
	Driver(l *Limiter) Driver
	// NewStub returns the limiter called name that s answers for.
	NewStub(name string, opts []Option, s Stub) (*Limiter, error)
	// Stub returns the Stub that answers for a limiter, or nil.
	Stub(l *Limiter) Stub

	// NeedsEnd reports whether a limiter has slots, which are taken until the work ends, whether it
	// has a queue, where a place may be given back, and units, which may be charged in another
	// number.
	NeedsEnd(l *Limiter) (slots, queue, units bool)
	// Looking returns the limiter that decides as l does, and whose denials ban nobody.
	Looking(l *Limiter) *Limiter
	// AcquireUpTo decides about a request that may wait, and sets res. The Permit is nil if nothing of
	// what it admitted has to be ended.
	AcquireUpTo(ctx context.Context, l *Limiter, w Waiting, res *Result) (*Permit, error)
	// ReserveUpTo is AcquireUpTo for a request whose true cost is known only later.
	ReserveUpTo(ctx context.Context, l *Limiter, w Waiting, res *Result) (*Reservation, error)
	// SettleLater is Settle, but need not wait for the reply.
	SettleLater(ctx context.Context, r *Reservation, actual int64) error
	// Emit passes an Event of an adapter on to the observers of a limiter, with the limiter's name.
	Emit(ctx context.Context, l *Limiter, e Event)
	// CountsAs reports whether two limiters have the same counts.
	CountsAs(l, other *Limiter) bool
	// WarnOnce logs a message, and those of its name not again.
	WarnOnce(ctx context.Context, l *Limiter, message string)
	// ErrorMinutely logs an error, and how many requests had one with this message, once a minute
	// at most.
	ErrorMinutely(ctx context.Context, l *Limiter, message string, err error)

	// Inspect returns what package admin shows of a limiter.
	Inspect(l *Limiter) Inspection
	// HeldOf returns how many units are held for a key, of each limit that counts any, by the limit's
	// name. It may ask Redis.
	HeldOf(ctx context.Context, l *Limiter, key string) (map[string]int64, error)
	// Held returns until when units are held for a Permit or a Reservation, of which the other is nil:
	// of each limit, or nothing if none are held. It also returns how many were charged or reserved.
	Held(p *Permit, r *Reservation) (expiries []int64, n int64)
	// Scripts returns the scripts of a limiter over Redis: for a call, for a batch, and for one by
	// limits of different numbers.
	Scripts(l *Limiter) (call, batch, mixed string)
}

// Registered is the Core of package core, which sets it as it is initialized.
var Registered any

// LimitSettings are what the options of a core.Limit set; zero is the default.
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
	// HotAsks is how often a key is asked for before it gets a lease, and LeaseShare the share of the
	// remaining units that a lease takes (3 means a third).
	HotAsks, LeaseShare int64
}

// A Driver has what a Limiter does in the background, for tests that do it themselves, and shows
// the leases.
type Driver struct {
	// Renew renews everything that is kept from expiring.
	Renew func()
	// CloseOld closes the leases whose time has come.
	CloseOld func()
	// Open returns how many leases are open.
	Open func() int
	// Latest identifies the lease of a key.
	Latest func(key string) any
}

// Canceled is the cost with which SettleLater cancels: with And that is more than a cost of 0.
const Canceled = -1

// An Inspection is what package admin shows of a *core.Limiter that nobody else needs.
type Inspection struct {
	Policy  string // that decides in an outage; empty without Redis
	Bans    bool   // it has the option Ban
	Servers []ServerState
}

// A ServerState is what this process knows of a server.
type ServerState struct {
	Addr  string
	State string // "up", "doubted" (a call failed, and probes find out), "down"
	Since time.Time
	Cause error // why it is not up
}

// A Waiting is what a request asks for that may wait.
type Waiting struct {
	Key  string
	N    int64
	UpTo time.Duration // it waits
	Most int           // requests that may wait at a time
}

// A WrongLimitError is the error of core.Limiter.With, and of core.AllowAll about limits that cannot
// decide together.
type WrongLimitError struct{ Err error }

func (e *WrongLimitError) Error() string { return e.Err.Error() }

// Unwrap returns what is wrong.
func (e *WrongLimitError) Unwrap() error { return e.Err }
