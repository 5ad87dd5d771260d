package core

import (
	"time"

	"github.com/redislimit/redislimit/internal/hook"
)

// The module's own suites drive leases by clocks of their own.
var _ = hook.SetLeases(hook.LeaseHooks{
	Drive: func(l any, wall, mono func() time.Duration) {
		lim := l.(*Limiter)
		lim.leases.manual = true
		lim.leases.now = func() instant { return instant{wall(), mono()} }
		lim.renewer.close()
	},
	Heat: func(l any, asks, share int64) {
		hot := l.(*Limiter).leases.hot
		hot.asks, hot.share = asks, share
	},
	CloseOld: func(l any) {
		ls := l.(*Limiter).leases
		ls.closeOld(ls.now())
	},
	Abandon: func(l any) {
		ls := l.(*Limiter).leases
		ls.mu.Lock()
		defer ls.mu.Unlock()
		for le := range ls.open {
			le.state.Store(leaseClosed)
		}
		clear(ls.open)
	},
	Open: func(l any) int {
		ls := l.(*Limiter).leases
		ls.mu.Lock()
		defer ls.mu.Unlock()
		return len(ls.open)
	},
	Latest: func(l any, key string) any {
		lim := l.(*Limiter)
		if h := lim.leases.hot.find(lim.leases.hot.hash(key), key, lim.limits); h != nil {
			return h.lease.Load()
		}
		return nil
	},
	Receipt: func(r any) (expiry, n int64) {
		receipt := r.(Result).receipt
		switch {
		case receipt.held != nil:
			expiry = receipt.held.refs[0].B
		case receipt.lease != nil:
			expiry = receipt.lease.refs[0].B
		}
		return expiry, receipt.n
	},
})
