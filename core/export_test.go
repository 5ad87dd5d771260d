package core

import "time"

// DriveLeases has the leases of l go by clocks of a test, and closes none in the background:
// CloseOldLeases does.
func DriveLeases(l *Limiter, wall, mono func() time.Duration) {
	l.leases.manual = true
	l.leases.now = func() instant { return instant{wall(), mono()} }
	l.renewer.close()
}

// HeatLeases has a key be hot when it was asked for so often, and a lease take such a share.
func HeatLeases(l *Limiter, asks, share int64) { l.leases.hot.asks, l.leases.hot.share = asks, share }

// LeaseOf returns the expiry of what is held for res, and whether that is of a lease which is
// open.
func LeaseOf(res Result) (expiry int64, open bool) {
	le := res.receipt.lease
	if held := res.receipt.held; held != nil {
		return held.refs[0].B, held.lease != nil && held.lease.state.Load()&leaseClosed == 0
	}
	if le == nil {
		return 0, false
	}
	return le.refs[0].B, le.state.Load()&leaseClosed == 0
}

// CloseOldLeases closes the leases whose time has come.
func CloseOldLeases(l *Limiter) { l.leases.closeOld(l.leases.now()) }

// AbandonLeases has l forget its leases, as if its process had died.
func AbandonLeases(l *Limiter) {
	l.leases.mu.Lock()
	defer l.leases.mu.Unlock()
	for le := range l.leases.open {
		le.state.Store(leaseClosed)
	}
	clear(l.leases.open)
}

// OpenLeases returns how many leases are open.
func OpenLeases(l *Limiter) int {
	l.leases.mu.Lock()
	defer l.leases.mu.Unlock()
	return len(l.leases.open)
}

// CostOf returns how many units were charged or reserved for res.
func CostOf(res Result) int64 { return res.receipt.n }
