// Package hook gives packages limittest, adapter and admin, and this module's own suites and tools,
// access to what core does not export. Importing package core sets it.
package hook

import (
	"context"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
)

// Set sets one of the functions below. Package core calls it for each, as it is initialized.
func Set[F any](hook *F, f F) bool {
	*hook = f
	return true
}

// LimitSettings are what the options of a core.Limit set; zero is the default.
type LimitSettings struct {
	Burst   int64
	Aligned bool
	Name    string
}

// NewLimit returns the core.Limit of a registered algorithm, whether it has a
// constructor in core or not.
var NewLimit func(k *algorithm.Kind, count int64, period time.Duration, s LimitSettings) any

// Wall returns the core.Option that has a limiter of core.New find the windows of a calendar by a clock of the
// module's own suites, which also drive that of Redis.
var Wall func(now func() time.Time) any

// A Driver is what tests do to a core.Limiter in place of its clocks and timers.
type Driver struct {
	// Renew renews at once all that is kept from expiring, as the limiter does now and then.
	Renew func()
	// Clock has what is held go by a clock of a test.
	Clock func(now func() time.Time)
	// Drive has leases go by clocks of a test, and closes and renews none in the background. Renewals
	// and settlements are sent one after the other.
	Drive func(wall, mono func() time.Duration)
	// Heat has a key be hot when it was asked for so often, and a lease take such a share.
	Heat func(asks, share int64)
	// CloseOld closes the leases whose time has come.
	CloseOld func()
	// Abandon forgets all leases, as if the process had died.
	Abandon func()
	// Open returns how many leases are open.
	Open func() int
	// Latest identifies the lease of a key.
	Latest func(key string) any
}

// DriverOf returns the Driver of a core.Limiter.
var DriverOf func(limiter any) Driver

// Held returns until when units are held for a *core.Reservation, of each limit (nothing if none
// are), and how many were charged or reserved.
var Held func(reservation any) (expiries []int64, n int64)

// NeedsEnd reports whether a *core.Limiter has slots, which are taken until the work ends, whether
// it has a queue, where a place may be given back, and units, which may be charged in another number.
var NeedsEnd func(limiter any) (slots, queue, units bool)

// Looking returns the *core.Limiter that decides as limiter does, and whose denials ban nobody.
var Looking func(limiter any) any

// Canceled is the cost with which SettleLater cancels: with And that is more than a cost of 0.
const Canceled = -1

// SettleLater is the Settle of a *core.Reservation, but need not wait for the reply.
var SettleLater func(ctx context.Context, reservation any, actual int64) error

// WarnOnce has a *core.Limiter log a message, and those of its name not again.
var WarnOnce func(ctx context.Context, limiter any, message string)

// ErrorMinutely has a *core.Limiter log an error, and how many requests had one with this message, once a minute at most.
var ErrorMinutely func(ctx context.Context, limiter any, message string, err error)

// CountsAs reports whether two *core.Limiters have the same counts.
var CountsAs func(limiter, other any) bool

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

// Inspect returns the Inspection of a *core.Limiter.
var Inspect func(limiter any) Inspection

// Scripts returns the scripts of a *core.Limiter over Redis: for a call, for a batch, and for one by limits of different numbers.
var Scripts func(limiter any) (call, batch, mixed string)

// HeldOf returns how many units of each limit of a *core.Limiter are held for a key. It may ask Redis.
var HeldOf func(ctx context.Context, limiter any, key string) ([]int64, error)

// A Waiting is what a request asks for that may wait.
type Waiting struct {
	Key     string
	N       int64
	Reserve bool          // it is settled when its true cost is known
	UpTo    time.Duration // it waits
	Most    int           // requests that may wait at a time
}

// WaitUpTo decides about w by a *core.Limiter, fills the *core.Result res, and returns the *core.Reservation, which may be nil.
var WaitUpTo func(ctx context.Context, limiter any, w Waiting, res any) (reservation any, err error)

// A WrongLimitError is the error of core.Limiter.With, and of core.All about limits that cannot decide together.
type WrongLimitError struct{ Err error }

func (e *WrongLimitError) Error() string { return e.Err.Error() }

// Unwrap returns what is wrong.
func (e *WrongLimitError) Unwrap() error { return e.Err }
