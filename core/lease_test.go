package core_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/suite/conformance"
	"github.com/redislimit/redislimit/internal/testkit/limits"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

// leased is the duration of the leases of these tests.
const leased = 100 * time.Millisecond

// A leaser is a Limiter with leases, in a process with clocks of its own.
type leaser struct {
	*core.Limiter

	wall, mono time.Duration
}

func newLeaser(t *testing.T, client core.Client, opts ...core.Option) *leaser {
	t.Helper()
	lim, err := core.New(client, "lease", append(opts, core.Lease(leased), core.FailClosed(), core.Timeout(10*time.Second), core.DenyCache(0))...)
	if err != nil {
		t.Fatal(err)
	}
	l := &leaser{Limiter: lim, wall: time.Hour}
	core.DriveLeases(lim, func() time.Duration { return l.wall }, func() time.Duration { return l.mono })
	return l
}

// pass has time pass for Redis and for processes.
func pass(d *conformance.Driven, by time.Duration, all ...*leaser) {
	d.Advance(by)
	for _, l := range all {
		l.wall += by
		l.mono += by
	}
}

func (l *leaser) allowN(t *testing.T, n int64) core.Result {
	t.Helper()
	res, err := l.AllowN(context.Background(), "k", n)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// heat asks until the key has a lease, and returns how many units that took.
func (l *leaser) heat(t *testing.T) (used int64) {
	t.Helper()
	for core.OpenLeases(l.Limiter) == 0 {
		if res := l.allowN(t, 1); !res.Allowed || res.Source != core.SourceRedis {
			t.Fatalf("request %d: %+v", used+1, res)
		}
		if used++; used > 100 {
			t.Fatal("100 requests made no lease")
		}
	}
	return used
}

func remaining(t *testing.T, lim *core.Limiter) int64 {
	t.Helper()
	res, err := lim.Peek(context.Background(), "k")
	if err != nil {
		t.Fatal(err)
	}
	return res.Remaining
}

// eachLeasable runs a test over each algorithm whose units can be leased.
func eachLeasable(t *testing.T, run func(t *testing.T, d *conformance.Driven, limit func(core.Rate) core.Limit)) {
	t.Helper()
	client := redistest.Server(t).Client(t)
	for _, v := range limits.All() {
		if v.Kind.Unleasable != "" {
			continue
		}
		t.Run(v.Name, func(t *testing.T) {
			client.FlushAll(context.Background())
			run(t, conformance.NewDriven(client), v.Limit)
		})
	}
}

// thousand is a limit of which little comes back while a test runs.
var thousand = core.PerDay(1000)

// TestLease has one process take a lease, spend it, and renew it in one run of a script.
func TestLease(t *testing.T) {
	eachLeasable(t, func(t *testing.T, d *conformance.Driven, limit func(core.Rate) core.Limit) {
		counted := &counting{Client: d}
		l := newLeaser(t, counted, limit(thousand))
		other := core.MustNew(d, "lease", limit(thousand), core.FailClosed())
		used := l.heat(t)
		if used != 9 {
			t.Errorf("%d requests made the key hot, want 9", used)
		}
		sent := counted.sent
		pass(d, time.Millisecond, l)
		first := l.allowN(t, 1)
		if !first.Allowed || first.Source != core.SourceLease || first.Remaining != 1000-used-1 || first.Name != limit(thousand).Name() || first.Limiter != "lease" {
			t.Errorf("from the lease: %+v", first)
		}
		if at := d.Now(); !first.At.Equal(at) {
			t.Errorf("At is %v, want %v", first.At, at)
		}
		left := remaining(t, other)
		if lease := 1000 - used - left; lease != 8 {
			t.Errorf("%d units are leased, want the 8 that were used before", lease)
		}
		for range 7 {
			if res := l.allowN(t, 1); res.Source != core.SourceLease {
				t.Errorf("from the lease: %+v", res)
			}
		}
		if counted.sent != sent {
			t.Errorf("%d commands were sent for decisions from a lease", counted.sent-sent)
		}
		res := l.allowN(t, 1)
		if res.Source != core.SourceRedis || res.Remaining != 1000-used-8-1 {
			t.Errorf("after the lease: %+v", res)
		}
		if counted.sent != sent+1 {
			t.Errorf("%d commands were sent to exchange a lease", counted.sent-sent)
		}
		if left = remaining(t, other); left != 1000-18-17 {
			t.Errorf("%d remain beside the second lease, want %d", left, 1000-18-17)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if left := remaining(t, other); left != 1000-18 {
			t.Errorf("%d remain after Close, want %d", left, 1000-18)
		}
		if res := l.allowN(t, 1); res.Source != core.SourceRedis || core.OpenLeases(l.Limiter) != 0 {
			t.Errorf("after Close: %+v", res)
		}
	})
}

// counting counts the scripts that are sent, and lets a test do something around them.
type counting struct {
	core.Client

	sent int
}

func (c *counting) Process(ctx context.Context, cmd redis.Cmder) error {
	if strings.HasPrefix(cmd.Name(), "eval") {
		c.sent++
	}
	return c.Client.Process(ctx, cmd)
}
