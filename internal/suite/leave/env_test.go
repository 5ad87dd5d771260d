package leave

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/faultproxy"
	"github.com/redislimit/redislimit/internal/testkit/redisclient"
)

func TestMain(m *testing.M) { check.RunParallel(m, 8) }

// soon is how long after the last request everything left behind may take to become free. A machine that was slow meanwhile
// has longer. Holds and slots last for a minute, unless a test is about their end.
var soon = []time.Duration{2 * time.Second, 10 * time.Second, 30 * time.Second}

// A place is the address of a server, or the addresses of the nodes of a Cluster. An empty place is the memory of this
// process.
type place []string

// An env is a client that reaches a place through proxies.
type env struct {
	proxies []*faultproxy.Proxy
	client  redis.UniversalClient // nil in memory
	direct  redis.UniversalClient // bypasses the proxies
	soon    time.Duration
}

func open(t testing.TB, p place, contextTimeout bool) *env {
	e := &env{soon: 5 * time.Second}
	if len(p) == 0 {
		return e
	}
	o := redis.UniversalOptions{Addrs: p, IsClusterMode: len(p) > 1, ContextTimeoutEnabled: contextTimeout, PoolSize: 40, PoolTimeout: patient, ReadTimeout: patient}
	e.direct = redisclient.NewUniversal(t, &o)
	e.proxies, o.Dialer = faultproxy.Before(t, p...)
	e.client = redisclient.NewUniversal(t, &o)
	t.Cleanup(func() { _, _ = e.client.Close(), e.direct.Close() })
	return e
}

// away sets the distance of Redis by the duration of a round trip.
func (e *env) away(roundTrip time.Duration) {
	for _, p := range e.proxies {
		p.Latency(roundTrip / 2)
	}
}

// quiet waits until nothing is sent any more: abandoned calls go on in the background, and free their units and slots
// afterwards.
func (e *env) quiet(t testing.TB) {
	t.Helper()
	silent := e.silence()
	check.Within(t, patient, "nothing is sent any more", func() bool { return silent() > 10*roundTrip })
}

// silence returns a function that returns for how long nothing has been sent.
func (e *env) silence() func() time.Duration {
	last, since := int64(0), time.Now()
	return func() time.Duration {
		sent := int64(0)
		for _, p := range e.proxies {
			sent += p.Requests()
		}
		if sent != last {
			last, since = sent, time.Now()
		}
		return time.Since(since)
	}
}

// names numbers the limiters, so that each has keys of its own.
var names atomic.Int64

// A limiter is a Limiter behind the proxies, with counts of its events.
type limiter struct {
	*core.Limiter

	t       testing.TB
	env     *env
	auditor *core.Limiter // on the same keys, bypassing the proxies
	outages atomic.Int32  // how often the outage policy began to decide
	leased  atomic.Int64  // the units of all leases
}

func (e *env) limiter(t testing.TB, limits core.Option, opts ...core.Option) *limiter {
	t.Helper()
	l := &limiter{t: t, env: e}
	observe := core.Observe(func(_ context.Context, e core.Event) {
		switch {
		case e.Kind == core.EventFallbackOn:
			l.outages.Add(1)
		case e.Kind == core.EventLease && e.Cost > 0:
			l.leased.Add(e.Cost)
		}
	})
	name := fmt.Sprint("l", names.Add(1))
	all := append([]core.Option{limits, observe, core.Logger(slog.New(slog.DiscardHandler))}, opts...)
	if e.client == nil {
		l.Limiter = core.MustNewMemory(name, all...)
		l.auditor = l.Limiter
		return l
	}
	l.Limiter = core.MustNew(e.client, name, all...)
	l.auditor = core.MustNew(e.direct, name, limits, core.FailClosed(), core.Timeout(time.Minute))
	t.Cleanup(func() { _, _ = l.Close(), l.auditor.Close() })
	for range 3 { // afterwards Redis knows the scripts, and the client where keys are
		if _, err := l.Peek(context.Background(), "k"); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// stored returns the state of the key in Redis.
func (l *limiter) stored() core.Result {
	l.t.Helper()
	res, err := l.auditor.Peek(context.Background(), "k")
	check.OK(l.t, err)
	return res
}

// remains returns how many units of the only limit remain.
func (l *limiter) remains() int64 { return l.stored().Remaining }

// is waits until the stored state of each limit is right, soon after the last request was sent. On a slow machine it takes
// long to free what hundreds of callers have left behind, one after the other.
func (l *limiter) is(what string, holds func(core.Result) bool) {
	l.t.Helper()
	var wrong core.Result
	silent, right := l.env.silence(), false
	check.Within(l.t, patient, what, func() bool {
		over := silent() > l.env.soon
		right = true
		for r := range l.stored().All() {
			if !holds(r) {
				wrong, right = r, false
			}
		}
		return right || over
	})
	if !right {
		l.t.Errorf("want within %[2]v: %[1]s; got %[4]d of %[5]d units of %[3]s remaining", what, l.env.soon, wrong.LimitName, wrong.Remaining, wrong.Limit)
	}
}

// whole reports whether all units of a limit remain.
func whole(r core.Result) bool { return r.Remaining == r.Limit }
