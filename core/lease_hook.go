package core

import (
	"fmt"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
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
			ls.now = func() instant { return instant{wall(), mono(), time.Now()} }
			l.renewer.drive()
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
			if h := ls.hot.set(ls.hot.hash(key)).find(key, l.limits); h != nil {
				return h.lease.Load()
			}
			return nil
		},
	}
})

// drive has what is kept renewed by hook.Renew alone: the timer is set only for what is to be
// looked at more often than before, which nothing is that is looked at every nanosecond.
func (w *renewer) drive() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kept, w.every = make(map[*reservation]kept), 1
	w.timer = time.NewTimer(0)
	w.timer.Stop()
}

var _ = hook.SetReceipt(func(result any) (expiries []int64, n int64) {
	r, ok := result.(Result)
	if !ok {
		panic(fmt.Sprintf("core: a %T is no Result", result))
	}
	var refs []algorithm.Ref
	switch {
	case r.receipt.held != nil:
		refs = r.receipt.held.refs
	case r.receipt.lease != nil:
		refs = r.receipt.lease.refs
	}
	for _, ref := range refs {
		expiries = append(expiries, ref.B)
	}
	return expiries, r.receipt.n
})
