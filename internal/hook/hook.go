// Package hook gives package limittest, and this module's own suites and tools, access to
// what core does not export. Importing package core sets it.
package hook

import (
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
)

// LimitSettings are what the options of a core.Limit set; zero is the default.
type LimitSettings struct {
	Burst   int64
	Aligned bool
	Name    string
}

// NewLimit returns the core.Limit of a registered algorithm, whether it has a
// constructor in core or not.
var NewLimit func(k *algorithm.Kind, count int64, period time.Duration, s LimitSettings) any

// SetNewLimit sets NewLimit.
func SetNewLimit(f func(*algorithm.Kind, int64, time.Duration, LimitSettings) any) bool {
	NewLimit = f
	return true
}

// LeaseHooks are what tests do to the leases of a core.Limiter.
type LeaseHooks struct {
	// Drive has leases go by clocks of a test, and closes none in the background.
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

// Leases returns the LeaseHooks of a core.Limiter.
var Leases func(limiter any) LeaseHooks

// SetLeases sets Leases.
func SetLeases(f func(limiter any) LeaseHooks) bool {
	Leases = f
	return true
}

// Receipt returns until when units are held for a core.Result, or 0, and how many were
// charged or reserved.
var Receipt func(result any) (expiry, n int64)

// SetReceipt sets Receipt.
func SetReceipt(f func(result any) (expiry, n int64)) bool {
	Receipt = f
	return true
}

// Renew renews at once all that a core.Limiter keeps from expiring, as it does by itself
// now and then.
var Renew func(limiter any)

// SetRenew sets Renew.
func SetRenew(f func(limiter any)) bool {
	Renew = f
	return true
}
