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

// ExpiryOf returns when the units expire that are held for res, or 0.
func ExpiryOf(res Result) int64 {
	switch {
	case res.receipt.held != nil:
		return res.receipt.held.refs[0].B
	case res.receipt.lease != nil:
		return res.receipt.lease.refs[0].B
	}
	return 0
}

// CostOf returns how many units were charged or reserved for res.
func CostOf(res Result) int64 { return res.receipt.n }

// LatestLease identifies the lease of a key.
func LatestLease(l *Limiter, key string) any {
	if h := l.leases.hot.find(l.leases.hot.hash(key), key, l.limits); h != nil {
		return h.lease.Load()
	}
	return nil
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
