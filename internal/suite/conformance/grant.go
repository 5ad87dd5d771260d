package conformance

import (
	"context"
	"testing"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/limits"
	"github.com/redislimit/redislimit/internal/testkit/permits"
)

// A grant is a Permit or a Reservation, with the arguments of the call that returned it.
type grant struct {
	*permits.Any

	lim      *core.Limiter
	n        int64
	reserved bool
}

// tryAcquire charges n units and takes slots, by Acquire.
func tryAcquire(ctx context.Context, lim *core.Limiter, key string, n int64) (grant, error) {
	r, err := permits.Acquire(lim, ctx, key, n)
	return granted(grant{r, lim, n, false}), err
}

// tryReserve holds n units and takes slots, by Reserve.
func tryReserve(ctx context.Context, lim *core.Limiter, key string, n int64) (grant, error) {
	r, err := permits.Reserve(lim, ctx, key, n)
	return granted(grant{r, lim, n, true}), err
}

// granted makes a grant usable after an error: it then holds an empty Result, which is a denial.
func granted(g grant) grant {
	if g.Any == nil {
		g.Any = &permits.Any{}
	}
	return g
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

// admit takes units that are never given back. A limit of slots has no other units, so there admit takes slots and keeps
// them.
func admit(t *testing.T, lim *core.Limiter, key string, n int64) core.Result {
	t.Helper()
	if limits.Named(lim.Limits()[0].Algorithm()).Kind.Slots {
		return acquire(t, lim, key, n).Result
	}
	return allowN(t, lim, key, n)
}
