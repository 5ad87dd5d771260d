package core

import (
	"context"
	"fmt"
	"time"

	"github.com/redislimit/redislimit/internal/hook"
	"github.com/redislimit/redislimit/internal/lease"
)

// The module's own suites drive leases and renewals by clocks of their own.
var _ = hook.SetDriver(func(limiter any) hook.Driver {
	l, ok := limiter.(*Limiter)
	if !ok {
		panic(fmt.Sprintf("core: a %T is no Limiter", limiter))
	}
	return hook.Driver{
		Renew: l.renewer.All,
		Clock: l.renewer.Clock,
		Drive: func(wall, mono func() time.Duration) {
			l.leases.Drive(func() lease.Instant { return lease.Instant{Wall: wall(), Mono: mono(), Read: time.Now()} })
			l.renewer.Drive()
			if l.store != nil {
				l.store.Drive()
			}
		},
		Heat:     l.leases.Heat,
		CloseOld: l.leases.CloseOld,
		Abandon:  l.leases.Abandon,
		Open:     l.leases.Open,
		Latest:   func(key string) any { return l.leases.Look(key, l.by).Hot.Lease() },
	}
})

var _ = hook.SetHeld(func(reservation any) (expiries []int64, n int64) {
	r, ok := reservation.(*Reservation)
	if !ok {
		panic(fmt.Sprintf("core: a %T is no Reservation", reservation))
	}
	if r.hold == nil {
		return nil, 0
	}
	for _, handle := range r.hold.Handles() {
		expiries = append(expiries, handle.B)
	}
	return expiries, r.hold.N
})

var _ = hook.SetNeedsEnd(func(limiter any) (slots, queue bool) {
	by := limiter.(*Limiter).by //nolint:forcetypeassert // package adapter passes it
	return by.Slots, by.Queues
})

var _ = hook.SetSettleLater(func(ctx context.Context, reservation any, actual int64) error {
	r, ok := reservation.(*Reservation)
	if !ok {
		panic(fmt.Sprintf("core: a %T is no Reservation", reservation))
	}
	if actual == hook.Canceled {
		return r.cancelLater(ctx)
	}
	return r.settleLater(ctx, actual)
})
