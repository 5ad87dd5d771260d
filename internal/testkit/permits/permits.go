// Package permits lets a test treat a core.Permit and a core.Reservation alike, if the test is about the admitted work and
// not about the type.
package permits

import (
	"context"
	"fmt"

	"github.com/redislimit/redislimit/core"
)

// An Any is a core.Permit or a core.Reservation, and the number of units that its call asked for. Its methods do nothing on
// nil, and on an Any that has only a Result.
type Any struct {
	core.Result

	N           int64
	Permit      *core.Permit
	Reservation *core.Reservation
}

// Acquire calls core.Limiter.Acquire.
func Acquire(l *core.Limiter, ctx context.Context, key string, n int64) (*Any, error) { //nolint:revive // as the method expression
	return OfPermit(n)(l.Acquire(ctx, key, n))
}

// Reserve calls core.Limiter.Reserve.
func Reserve(l *core.Limiter, ctx context.Context, key string, n int64) (*Any, error) { //nolint:revive // as the method expression
	return OfReservation(n)(l.Reserve(ctx, key, n))
}

// OfPermit returns a function that makes an Any of n units from the results of a method that returns a Permit.
func OfPermit(n int64) func(*core.Permit, error) (*Any, error) {
	return func(p *core.Permit, err error) (*Any, error) {
		if p == nil {
			return nil, err
		}
		return &Any{Result: p.Result, N: n, Permit: p}, err
	}
}

// OfReservation is OfPermit for a method that returns a Reservation.
func OfReservation(n int64) func(*core.Reservation, error) (*Any, error) {
	return func(r *core.Reservation, err error) (*Any, error) {
		if r == nil {
			return nil, err
		}
		return &Any{Result: r.Result, N: n, Reservation: r}, err
	}
}

// Settle ends g at a cost of actual units. A Permit can cost only nothing, or the units that its call asked for.
func (g *Any) Settle(ctx context.Context, actual int64) error {
	switch {
	case g == nil:
		return nil
	case g.Reservation != nil:
		return g.Reservation.Settle(ctx, actual)
	case g.Permit == nil:
		return nil
	case actual == 0 || !g.Allowed: // there is nothing to end after a denial
		return g.Permit.Cancel(ctx)
	case actual == g.N:
		return g.Permit.Release(ctx)
	}
	panic(fmt.Sprintf("a Permit of %d units cannot cost %d", g.N, actual))
}

// Release ends g at the cost of all units that its call asked for.
func (g *Any) Release(ctx context.Context) error {
	if g == nil {
		return nil
	}
	return g.Settle(ctx, g.N)
}

// Cancel ends g, whose work was not done.
func (g *Any) Cancel(ctx context.Context) error {
	switch {
	case g == nil:
		return nil
	case g.Reservation != nil:
		return g.Reservation.Cancel(ctx)
	}
	return g.Permit.Cancel(ctx)
}

// Keep renews the hold of a Reservation. A Permit needs no renewal by Keep.
func (g *Any) Keep() {
	if g != nil {
		g.Reservation.Keep()
	}
}

// Context calls the method of the Permit or the Reservation.
func (g *Any) Context(ctx context.Context) (context.Context, context.CancelFunc) {
	switch {
	case g == nil:
		return ctx, func() {}
	case g.Reservation != nil:
		return g.Reservation.Context(ctx)
	}
	return g.Permit.Context(ctx)
}
