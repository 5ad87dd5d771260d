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

// soon is how long after the last request what is left behind may take to be free, and how long on a machine that was late
// meanwhile: all holds and slots last for a minute, unless a test is about their end.
var soon = []time.Duration{2 * time.Second, 10 * time.Second, 30 * time.Second}

// A place is the addresses of one server, or of the nodes of a Cluster; without any it is the memory of
// this process.
type place []string

// An env is a client that reaches a place through proxies.
type env struct {
	proxies []*faultproxy.Proxy
	client  redis.UniversalClient // nil in memory
	direct  redis.UniversalClient // past the proxies
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

// away sets how far away Redis is: a round trip takes so long.
func (e *env) away(roundTrip time.Duration) {
	for _, p := range e.proxies {
		p.Latency(roundTrip / 2)
	}
}

// quiet waits until nothing is sent any more: what callers have left goes on, and is then freed.
func (e *env) quiet(t testing.TB) {
	t.Helper()
	silent := e.silence()
	check.Within(t, patient, "nothing is sent any more", func() bool { return silent() > 10*roundTrip })
}

// silence returns a function that returns for how long nothing was sent.
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

var names atomic.Int64 // of limiters: each has keys of its own

// A limiter is a Limiter behind the proxies, with what the test knows about it.
type limiter struct {
	*core.Limiter

	t       testing.TB
	env     *env
	auditor *core.Limiter // of the same keys, past the proxies
	outages atomic.Int32  // how often the outage policy began to decide
	leased  atomic.Int64  // units, of all leases
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
	for range 3 { // the scripts are there, and it is known where keys are
		if _, err := l.Peek(context.Background(), "k"); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// stored returns what Redis says of the key.
func (l *limiter) stored() core.Result {
	l.t.Helper()
	res, err := l.auditor.Peek(context.Background(), "k")
	check.OK(l.t, err)
	return res
}

// remains returns how many units of the only limit remain.
func (l *limiter) remains() int64 { return l.stored().Remaining }

// is waits until what is stored of each limit is as it should be, soon after the last that was sent: on a slow machine it takes
// long to free what hundreds have left, one after the other.
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
		l.t.Errorf("%s: not within %v: %s: %d of %d remain", what, l.env.soon, wrong.LimitName, wrong.Remaining, wrong.Limit)
	}
}

func whole(r core.Result) bool { return r.Remaining == r.Limit }
