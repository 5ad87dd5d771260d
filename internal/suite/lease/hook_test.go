package lease_test

import (
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/hook"
)

// driveLeases has the leases of l go by clocks of a test, and closes none in the background:
// closeOldLeases does.
func driveLeases(l *core.Limiter, wall, mono func() time.Duration) { hook.Leases(l).Drive(wall, mono) }

// heatLeases has a key be hot when it was asked for so often, and a lease take such a share.
func heatLeases(l *core.Limiter, asks, share int64) { hook.Leases(l).Heat(asks, share) }

// expiryOf returns when the units expire that are held for res, or 0.
func expiryOf(res core.Result) int64 {
	expiry, _ := hook.Receipt(res)
	return expiry
}

// costOf returns how many units were charged or reserved for res.
func costOf(res core.Result) int64 {
	_, n := hook.Receipt(res)
	return n
}

// latestLease identifies the lease of a key.
func latestLease(l *core.Limiter, key string) any { return hook.Leases(l).Latest(key) }

// closeOldLeases closes the leases whose time has come.
func closeOldLeases(l *core.Limiter) { hook.Leases(l).CloseOld() }

// abandonLeases has l forget its leases, as if its process had died.
func abandonLeases(l *core.Limiter) { hook.Leases(l).Abandon() }

// openLeases returns how many leases are open.
func openLeases(l *core.Limiter) int { return hook.Leases(l).Open() }
