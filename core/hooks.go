package core

import (
	"context"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/hook"
	"github.com/redislimit/redislimit/internal/lease"
	"github.com/redislimit/redislimit/internal/server"
)

// An inside is what this module alone can have of the package, by package inside. Its methods stand by what they are about.
type inside struct{}

func init() { //nolint:gochecknoinits // a variable of what refers to core would be an import cycle
	hook.Registered = hook.Core[Limiter, Reservation, Result, Option, Limit](inside{})
}

func (inside) Driver(l *Limiter) hook.Driver {
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
}

func (inside) Held(r *Reservation) (expiries []int64, n int64) {
	if r.hold == nil {
		return nil, 0
	}
	for _, handle := range r.hold.Handles() {
		expiries = append(expiries, handle.B)
	}
	return expiries, r.hold.N
}

func (inside) NeedsEnd(l *Limiter) (slots, queue, units bool) {
	return l.by.Slots, l.by.Queues, l.by.Units
}

func (inside) SettleLater(ctx context.Context, r *Reservation, actual int64) error {
	if actual == hook.Canceled {
		return r.cancelLater(ctx)
	}
	return r.settleLater(ctx, actual)
}

func (inside) WarnOnce(ctx context.Context, l *Limiter, message string) { l.warnOnce(ctx, message) }

func (inside) ErrorMinutely(ctx context.Context, l *Limiter, message string, err error) {
	l.errorMinutely(ctx, message, err)
}

func (inside) CountsAs(l, other *Limiter) bool { return l.countsAs(other) }

func (inside) Inspect(l *Limiter) hook.Inspection {
	seen := hook.Inspection{Bans: l.bans != nil}
	if l.store != nil {
		seen.Policy, seen.Servers = l.policy.String(), l.store.Servers()
	}
	return seen
}

func (inside) Scripts(l *Limiter) (call, batch, mixed string) { return l.store.Scripts() }

func (inside) HeldOf(ctx context.Context, l *Limiter, key string) ([]int64, error) {
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
}
