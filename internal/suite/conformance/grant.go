package conformance

import (
	"context"
	"testing"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/limits"
	"github.com/redislimit/redislimit/internal/testkit/permits"
)

// A grant is a Reservation, with the arguments of the call that made it.
type grant struct {
	*permits.Any

	lim      *core.Limiter
	n        int64
	reserved bool
}

// tryAcquire charges n units, and takes slots.
func tryAcquire(ctx context.Context, lim *core.Limiter, key string, n int64) (grant, error) {
	r, err := permits.Acquire(lim, ctx, key, n)
	return granted(grant{r, lim, n, false}), err
}

// tryReserve holds n units, and takes slots.
func tryReserve(ctx context.Context, lim *core.Limiter, key string, n int64) (grant, error) {
	r, err := permits.Reserve(lim, ctx, key, n)
	return granted(grant{r, lim, n, true}), err
}

// granted turns an error into the Result of a denial.
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

// admit asks for units that are not given back, and for slots where the limit has those.
func admit(t *testing.T, lim *core.Limiter, key string, n int64) core.Result {
	t.Helper()
	if limits.Named(lim.Limits()[0].Algorithm()).Kind.Slots {
		return acquire(t, lim, key, n).Result
	}
	return allowN(t, lim, key, n)
}
