package core

import (
	"context"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/hook"
	"github.com/redislimit/redislimit/internal/lease"
	"github.com/redislimit/redislimit/internal/server"
)

// The module's own suites drive leases and renewals by clocks of their own.
var _ = hook.Set(&hook.DriverOf, func(limiter any) hook.Driver {
	l := limiter.(*Limiter) //nolint:forcetypeassert // the suites pass it
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

var _ = hook.Set(&hook.Held, func(reservation any) (expiries []int64, n int64) {
	r := reservation.(*Reservation) //nolint:forcetypeassert // the suites pass it
	if r.hold == nil {
		return nil, 0
	}
	for _, handle := range r.hold.Handles() {
		expiries = append(expiries, handle.B)
	}
	return expiries, r.hold.N
})

var _ = hook.Set(&hook.NeedsEnd, func(limiter any) (slots, queue, units bool) {
	by := limiter.(*Limiter).by //nolint:forcetypeassert // package adapter passes it
	return by.Slots, by.Queues, by.Units
})

var _ = hook.Set(&hook.SettleLater, func(ctx context.Context, reservation any, actual int64) error {
	r := reservation.(*Reservation) //nolint:forcetypeassert // package adapter passes it
	if actual == hook.Canceled {
		return r.cancelLater(ctx)
	}
	return r.settleLater(ctx, actual)
})

var _ = hook.Set(&hook.WarnOnce, func(ctx context.Context, limiter any, message string) {
	limiter.(*Limiter).warnOnce(ctx, message) //nolint:forcetypeassert // package adapter passes it
})

var _ = hook.Set(&hook.ErrorMinutely, func(ctx context.Context, limiter any, message string, err error) {
	limiter.(*Limiter).errorMinutely(ctx, message, err) //nolint:forcetypeassert // package adapter passes it
})

var _ = hook.Set(&hook.CountsAs, func(limiter, other any) bool {
	return limiter.(*Limiter).countsAs(other.(*Limiter)) //nolint:forcetypeassert // package adapter passes them
})

var _ = hook.Set(&hook.Inspect, func(limiter any) hook.Inspection {
	l := limiter.(*Limiter) //nolint:forcetypeassert // package admin passes it
	seen := hook.Inspection{Bans: l.bans != nil}
	if l.store != nil {
		seen.Policy, seen.Servers = l.policy.String(), l.store.Servers()
	}
	return seen
})

var _ = hook.Set(&hook.Scripts, func(limiter any) (call, batch, mixed string) {
	return limiter.(*Limiter).store.Scripts() //nolint:forcetypeassert // a tool passes it
})

var _ = hook.Set(&hook.HeldOf, func(ctx context.Context, limiter any, key string) ([]int64, error) {
	l := limiter.(*Limiter) //nolint:forcetypeassert // package admin passes it
	answers := make([]algorithm.Answer, len(l.by.Members))
	switch {
	case l.memory != nil:
		l.memory.Decide(l.by.Memory, key, 1, false, answers)
	case l.store != nil:
		d := server.NewCall(l.by.Server, key, algorithm.HoldCall{Op: algorithm.OpEvaluate, N: 1})
		if err := l.store.Decide(ctx, d); err != nil {
			return nil, l.failure(ctx, err)
		}
		answers = d.Answers
	}
	held := make([]int64, len(answers))
	for i := range answers {
		held[i] = answers[i].Held
	}
	return held, nil
})
