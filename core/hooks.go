package core

import (
	"cmp"
	"context"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/coreaccess"
)

// inside implements [coreaccess.Core], whose comments say what the methods do. Other packages of this module
// call these methods through package inside. The methods AcquireUpTo and ReserveUpTo are in wait.go.
type inside struct{}

func init() { //nolint:gochecknoinits // coreaccess cannot import core, because core imports coreaccess
	coreaccess.Registered = coreaccess.Core[Limiter, Permit, Reservation, Result, Option, Limit, Event](inside{})
}

func (inside) NewLimit(k *algorithm.Kind, count int64, period time.Duration, s coreaccess.LimitSettings) Limit {
	l := newLimit(k, Per(count, period))
	if k == algorithm.Calendar {
		l.kind, l.zone = algorithm.FixedWindow, even
	}
	if k.Slots {
		l, s.Burst = newLimit(k, Rate{}), count
	}
	l.burst, l.aligned, l.name = s.Burst, s.Aligned, s.Name
	return l
}

func (inside) LimitKey(l Limit) string { return l.key() }

func (inside) Simulate(s coreaccess.Simulation) Option { return simulation(s) }

// A simulation is the option that Simulate returns. It may be given several times: a field that is set
// replaces the field of an earlier simulation.
type simulation coreaccess.Simulation

func (s simulation) apply(c *config) {
	if s.Wall != nil {
		c.simulated.Wall = s.Wall
	}
	if s.Holds != nil {
		c.simulated.Holds = s.Holds
	}
	if s.Leases != nil {
		c.simulated.Leases = s.Leases
	}
	c.simulated.HotDecisions = cmp.Or(s.HotDecisions, c.simulated.HotDecisions)
	c.simulated.LeaseShare = cmp.Or(s.LeaseShare, c.simulated.LeaseShare)
}

func (inside) Driver(l *Limiter) coreaccess.Driver {
	return coreaccess.Driver{
		Renew:    l.family.renewer.All,
		CloseOld: l.family.leases.CloseOld,
		Open:     l.family.leases.Open,
		Latest:   func(key string) any { return l.family.leases.Find(key, l.set).Hot.Lease() },
	}
}

// NewStub returns a Limiter for package limittest: the stub s is its backend, in place of Redis or memory.
func (inside) NewStub(name string, opts []Option, s coreaccess.Stub) (*Limiter, error) {
	c, err := configure(name, []Option{options(opts), anyLimit{}})
	if err != nil {
		return nil, err
	}
	f := newFamily(name, c)
	f.backend, f.decidesUncounted = &stubbed{s, name, f.now}, true
	f.renewer.Close() // nothing expires
	return f.limiter(c.limits), nil
}

// anyLimit is an option that gives the Limiter a limit if it has none. This limit is hardly ever reached.
type anyLimit struct{}

func (anyLimit) apply(c *config) {
	if len(c.limits) == 0 {
		FixedWindow(PerMinute(maxCount)).apply(c)
	}
}

func (inside) Stub(l *Limiter) coreaccess.Stub {
	if s, ok := l.family.backend.(*stubbed); ok {
		return s.stub
	}
	return nil
}

func (inside) NeedsEnd(l *Limiter) (slots, queue, units bool) {
	return l.set.Slots, l.set.Queues, l.set.Units
}

// WithoutBans returns a Limiter that is like l, except that its denials begin no bans. It is for a
// middleware with DryRun.
func (inside) WithoutBans(l *Limiter) *Limiter {
	if len(l.family.bans) == 0 {
		return l
	}
	copied := *l
	copied.bansNobody = true
	return &copied
}

func (inside) SettleLater(ctx context.Context, r *Reservation, actual int64) error {
	if actual == coreaccess.Canceled {
		return (*admission)(r).cancelLater(ctx)
	}
	return (*admission)(r).settleLater(ctx, actual)
}

func (inside) WarnOnce(ctx context.Context, l *Limiter, message string) {
	l.family.events.warnOnce(ctx, message)
}

func (inside) ErrorMinutely(ctx context.Context, l *Limiter, message string, err error) {
	l.family.events.errorMinutely(ctx, message, err)
}

func (inside) Emit(ctx context.Context, l *Limiter, e Event) { l.family.events.emit(ctx, "", e) }

func (inside) CountsAs(l, other *Limiter) bool { return l.countsAs(other) }

func (inside) Inspect(l *Limiter) coreaccess.Inspection {
	seen := coreaccess.Inspection{Bans: l.family.bans != nil}
	if l.set.Store != nil {
		seen.Policy, seen.Servers = l.family.policy.String(), l.set.Store.Servers()
	}
	return seen
}

func (inside) Scripts(l *Limiter) (call, batch, mixed string) { return l.set.Store.Scripts() }

func (inside) HeldOf(ctx context.Context, l *Limiter, key string) (map[string]int64, error) {
	held := make(map[string]int64, len(l.set.Limits))
	if _, ok := l.family.backend.(*stubbed); ok || l.set.Uncounted {
		return held, nil
	}
	req := l.newRequest(key, 1, algorithm.OpEvaluate)
	defer req.recycle()
	if err := l.family.backend.Decide(ctx, &req.call, &req.reply); err != nil {
		return nil, l.family.failure(ctx, err)
	}
	for i, name := range l.set.Names {
		held[name] = req.reply.Answers[i].Held
	}
	return held, nil
}

func (inside) Held(p *Permit, r *Reservation) (expiries []int64, n int64) {
	a := (*admission)(p)
	if a == nil {
		a = (*admission)(r)
	}
	if a.hold == nil {
		return nil, 0
	}
	for _, handle := range a.hold.Handles() {
		expiries = append(expiries, handle.B)
	}
	return expiries, a.hold.N
}
