package core

import (
	"fmt"
	"time"

	"github.com/redislimit/redislimit/internal/hook"
)

// The module's own suites drive leases by clocks of their own.
var _ = hook.SetLeases(func(limiter any) hook.LeaseHooks {
	l, ok := limiter.(*Limiter)
	if !ok {
		panic(fmt.Sprintf("core: a %T is no Limiter", limiter))
	}
	ls := l.leases
	return hook.LeaseHooks{
		Drive: func(wall, mono func() time.Duration) {
			ls.manual = true
			ls.now = func() instant { return instant{wall(), mono()} }
			l.renewer.close()
		},
		Heat:     func(asks, share int64) { ls.hot.asks, ls.hot.share = asks, share },
		CloseOld: func() { ls.closeOld(ls.now()) },
		Abandon: func() {
			ls.mu.Lock()
			defer ls.mu.Unlock()
			for le := range ls.open {
				le.state.Store(leaseClosed)
			}
			clear(ls.open)
		},
		Open: func() int {
			ls.mu.Lock()
			defer ls.mu.Unlock()
			return len(ls.open)
		},
		Latest: func(key string) any {
			if h := ls.hot.find(ls.hot.hash(key), key, l.limits); h != nil {
				return h.lease.Load()
			}
			return nil
		},
	}
})

var _ = hook.SetReceipt(func(result any) (expiry, n int64) {
	r, ok := result.(Result)
	if !ok {
		panic(fmt.Sprintf("core: a %T is no Result", result))
	}
	switch {
	case r.receipt.held != nil:
		expiry = r.receipt.held.refs[0].B
	case r.receipt.lease != nil:
		expiry = r.receipt.lease.refs[0].B
	}
	return expiry, r.receipt.n
})
