// Package hook gives this module's own suites and tools access to what core does not
// export. Importing package core sets it.
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

// LeaseHooks are what tests do to the leases of a core.Limiter, which is the first argument.
type LeaseHooks struct {
	// Drive has leases go by clocks of a test, and closes none in the background.
	Drive func(limiter any, wall, mono func() time.Duration)
	// Heat has a key be hot when it was asked for so often, and a lease take such a share.
	Heat func(limiter any, asks, share int64)
	// CloseOld closes the leases whose time has come.
	CloseOld func(limiter any)
	// Abandon forgets all leases, as if the process had died.
	Abandon func(limiter any)
	// Open returns how many leases are open.
	Open func(limiter any) int
	// Latest identifies the lease of a key.
	Latest func(limiter any, key string) any
	// Receipt returns until when units are held for a core.Result, or 0, and how many were
	// charged or reserved.
	Receipt func(result any) (expiry, n int64)
}

// Leases are the LeaseHooks of package core.
var Leases LeaseHooks

// SetLeases sets Leases.
func SetLeases(h LeaseHooks) bool {
	Leases = h
	return true
}
