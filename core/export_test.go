package core

import "time"

// DriveLeases has the leases of l go by clocks of a test, and closes none in the background:
// CloseOldLeases does.
func DriveLeases(l *Limiter, wall, mono func() time.Duration) {
	l.leases.manual = true
	l.leases.now = func() instant { return instant{wall(), mono()} }
	l.renewer.close()
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
