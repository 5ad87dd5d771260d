package outage

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/limits"
)

// brokenClient is a client whose Redis is away from the start.
type brokenClient struct{}

// Process fails at once.
func (brokenClient) Process(_ context.Context, cmd redis.Cmder) error {
	cmd.SetErr(errBroken)
	return errBroken
}

// admittedLocally returns how many calls the fallback admits until it denies one.
func admittedLocally(t *testing.T, l *core.Limiter) int64 {
	t.Helper()
	var n int64
	for {
		r, err := l.Acquire(t.Context(), "k", 1)
		if err != nil || r.Source != core.SourceFallback {
			t.Fatalf("Acquire: got %+v, %v; want a decision by the fallback", r, err)
		}
		if !r.Allowed {
			return n
		}
		n++
	}
}

// TestPartOfEachProcess checks that each of n processes enforces 1/n of the limit: of the burst of a bucket and of the
// count of a window. The test would notice processes that together admit n times the burst.
func TestPartOfEachProcess(t *testing.T) {
	t.Parallel()
	perHour := core.PerHour(40)
	type part struct {
		limits    []core.Option
		processes int
		want      int64
	}
	cases := map[string]part{
		"burst above":     {[]core.Option{core.TokenBucket(perHour, core.Burst(80))}, 4, 20},
		"more than units": {[]core.Option{core.TokenBucket(perHour, core.Burst(3))}, 4, 1},
		"the tightest":    {[]core.Option{core.FixedWindow(perHour), core.TokenBucket(perHour, core.Burst(20))}, 2, 10},
		"slots":           {[]core.Option{core.InFlight(40)}, 4, 10},
		"fewer slots":     {[]core.Option{core.InFlight(3)}, 4, 1},
		"one process":     {[]core.Option{core.TokenBucket(perHour, core.Burst(20))}, 1, 20},
	}
	for _, v := range limits.All() {
		cases[v.Name] = part{[]core.Option{v.Limit(perHour)}, 4, 10}
		if v.Kind.Debt {
			cases[v.Name+", burst below"] = part{[]core.Option{v.With(perHour, limits.Settings{Burst: 20})}, 4, 5}
		}
	}
	for name, c := range cases {
		l, _ := watched(brokenClient{}, "part", append(c.limits, core.FailLocal(), core.Processes(c.processes))...)
		if n := admittedLocally(t, l); n != c.want {
			t.Errorf("%[1]s: one of %[2]d processes admits %[3]d calls during an outage, want %[4]d", name, c.processes, n, c.want)
		}
	}
}

// TestResetInOutage checks that Reset returns ErrUnavailable during an outage, because it cannot reach Redis, but deletes
// the counts of this process. The test would notice a Reset that leaves a key denied until the outage is over.
func TestResetInOutage(t *testing.T) {
	t.Parallel()
	l, _ := limiter(brokenClient{}, "reset", core.FailLocal())
	for range 2 {
		if n := admittedLocally(t, l); n != limit {
			t.Errorf("the process admits %d calls during the outage, want %d", n, limit)
		}
		if err := l.Reset(t.Context(), "other"); !errors.Is(err, core.ErrUnavailable) {
			t.Errorf("Reset of another key: got error %v, want ErrUnavailable", err)
		}
		if res, err := l.Allow(t.Context(), "k"); err != nil || res.Allowed {
			t.Errorf("after a Reset of another key: got %+v, %v; want a denial", res, err)
		}
		if err := l.Reset(t.Context(), "k"); !errors.Is(err, core.ErrUnavailable) {
			t.Errorf("Reset: got error %v, want ErrUnavailable", err)
		}
	}
}

// TestBansInOutage checks that a process bans without Redis during an outage: by the limits that it enforces alone, and by
// hand. The test would notice a ban for a cost above the process's share of a limit, and a Block that is lost in an outage.
func TestBansInOutage(t *testing.T) {
	t.Parallel()
	l, _ := watched(brokenClient{}, "bans", core.FixedWindow(core.PerMinute(40)), core.FailLocal(), core.Processes(4), core.Ban(time.Hour))
	denied := func(n int64, banned bool) {
		t.Helper()
		res, err := l.AllowN(t.Context(), "k", n)
		if err != nil || res.Allowed || res.Banned != banned || res.Source != core.SourceFallback {
			t.Errorf("a cost of %d: got %+v, %v; want a denial by the fallback with Banned %v", n, res, err, banned)
		}
	}
	denied(11, false)
	if n := admittedLocally(t, l); n != 10 {
		t.Errorf("the process admits %d calls during the outage, want 10", n)
	}
	denied(1, true)
	if err := l.Unblock(t.Context(), "k"); !errors.Is(err, core.ErrUnavailable) {
		t.Errorf("Unblock: got error %v, want ErrUnavailable", err)
	}
	denied(11, false)
	if err := l.Block(t.Context(), "k", time.Minute); !errors.Is(err, core.ErrUnavailable) {
		t.Errorf("Block: got error %v, want ErrUnavailable", err)
	}
	denied(11, true)
}
