package conformance

import (
	"context"
	"testing"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/limits"
)

// A grant is the answer to a call whose units can be given back. All of this suite charges, holds and ends such units
// here.
type grant struct {
	core.Result

	lim      *core.Limiter
	n        int64
	reserved bool
}

// tryAcquire charges n units, and takes slots.
func tryAcquire(ctx context.Context, lim *core.Limiter, key string, n int64) (grant, error) {
	res, err := lim.AllowN(ctx, key, n)
	return grant{res, lim, n, false}, err
}

// tryReserve holds n units, and takes slots.
func tryReserve(ctx context.Context, lim *core.Limiter, key string, n int64) (grant, error) {
	res, err := lim.Reserve(ctx, key, n)
	return grant{res, lim, n, true}, err
}

// Settle ends g. It cost so many units.
func (g grant) Settle(ctx context.Context, actual int64) error {
	return g.lim.Settle(ctx, g.Result, actual)
}

// Cancel ends g. It cost nothing.
func (g grant) Cancel(ctx context.Context) error { return g.lim.Refund(ctx, g.Result) }

// Release ends g. It cost what was asked for.
func (g grant) Release(ctx context.Context) error {
	if g.reserved {
		return g.Settle(ctx, g.n)
	}
	return g.lim.Release(ctx, g.Result)
}

// Keep has renewed what is held.
func (g grant) Keep() { g.lim.KeepHeld(g.Result) }

// Context returns a context that ends when the slots are lost.
func (g grant) Context(ctx context.Context) (context.Context, context.CancelFunc) {
	return g.lim.SlotContext(ctx, g.Result)
}

func acquire(t *testing.T, lim *core.Limiter, key string, n int64) grant {
	t.Helper()
	g, err := tryAcquire(context.Background(), lim, key, n)
	if err != nil {
		t.Errorf("Acquire(%q, %d): %v", key, n, err)
	}
	return g
}

func reserve(t *testing.T, lim *core.Limiter, key string, n int64) grant {
	t.Helper()
	g, err := tryReserve(context.Background(), lim, key, n)
	if err != nil {
		t.Errorf("Reserve(%q, %d): %v", key, n, err)
	}
	return g
}

func settle(t *testing.T, g grant, actual int64) {
	t.Helper()
	if err := g.Settle(context.Background(), actual); err != nil {
		t.Errorf("Settle(%d): %v", actual, err)
	}
}

func cancel(t *testing.T, g grant) {
	t.Helper()
	if err := g.Cancel(context.Background()); err != nil {
		t.Errorf("Cancel: %v", err)
	}
}

func release(t *testing.T, g grant) {
	t.Helper()
	if err := g.Release(context.Background()); err != nil {
		t.Errorf("Release: %v", err)
	}
}

// admit asks for units that are not given back, and for slots where the limit has those.
func admit(t *testing.T, lim *core.Limiter, key string, n int64) core.Result {
	t.Helper()
	if limits.Named(lim.Limits()[0].Algorithm()).Kind.Slots {
		return acquire(t, lim, key, n).Result
	}
	return allowN(t, lim, key, n)
}
