package leave

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/faultproxy"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

func TestMain(m *testing.M) { check.RunParallel(m, 4) }

// soon is how long what is left behind may take to be free: all holds and slots last for a minute, unless
// a test is about their end.
const soon = 5 * time.Second

// A place is where limits are counted: one server, the nodes of a Cluster, or the memory of this process.
type place struct {
	name  string
	addrs []string
}

func places(t *testing.T) []place {
	return []place{
		{"server", []string{redistest.Server(t).Addr}},
		{"cluster", redistest.Cluster(t)},
	}
}

// An env is a client that reaches a place through proxies.
type env struct {
	place
	proxies []*faultproxy.Proxy
	client  interface {
		core.Client
		Close() error
	}
	direct core.Client // past the proxies
}

var names atomic.Int64 // of limiters: each has keys of its own

func open(t testing.TB, p place, contextTimeout bool) *env {
	e := &env{place: p}
	if len(p.addrs) == 0 {
		return e
	}
	through := map[string]string{}
	for _, addr := range p.addrs {
		proxy := faultproxy.New(t, addr)
		e.proxies = append(e.proxies, proxy)
		through[addr] = proxy.Addr()
	}
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, through[addr])
	}
	if len(p.addrs) == 1 {
		e.client = redis.NewClient(&redis.Options{Addr: p.addrs[0], Dialer: dial, ContextTimeoutEnabled: contextTimeout, PoolSize: 20})
		direct := redis.NewClient(&redis.Options{Addr: p.addrs[0]})
		t.Cleanup(func() { _ = direct.Close() })
		e.direct = direct
	} else {
		e.client = redis.NewClusterClient(&redis.ClusterOptions{Addrs: p.addrs, Dialer: dial, ContextTimeoutEnabled: contextTimeout, PoolSize: 20})
		e.direct = redistest.ClusterClient(t, p.addrs)
	}
	t.Cleanup(func() { _ = e.client.Close() })
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
	sent := func() (n int64) {
		for _, p := range e.proxies {
			n += p.Requests()
		}
		return n
	}
	last, since := sent(), time.Now()
	check.Within(t, soon, "nothing is sent any more", func() bool {
		if n := sent(); n != last {
			last, since = n, time.Now()
		}
		return time.Since(since) > 10*roundTrip
	})
}

// connect makes connections to the server of the key.
func (e *env) connect(t testing.TB) {
	e.away(10 * roundTrip)
	l := core.MustNew(e.client, "connect", core.GCRA(core.PerSecond(1)), core.MaxBatch(1), core.Timeout(patient))
	defer func() { _ = l.Close() }()
	together(20, func(int) {
		if _, err := l.Peek(t.Context(), "k"); err != nil {
			t.Error(err)
		}
	})
}

// A limiter is one through the proxies, and what is known of it.
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
	name := fmt.Sprint("l", names.Add(1))
	all := append([]core.Option{limits, core.Logger(slog.New(slog.DiscardHandler)), core.Observe(func(_ context.Context, e core.Event) {
		switch {
		case e.Kind == core.EventFallbackOn:
			l.outages.Add(1)
		case e.Kind == core.EventLease && e.Cost > 0:
			l.leased.Add(e.Cost)
		}
	})}, opts...)
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

// stored returns what Redis says of the key, for each limit.
func (l *limiter) stored() []core.Result {
	l.t.Helper()
	res, err := l.auditor.Peek(context.Background(), "k")
	if err != nil {
		l.t.Error(err)
	}
	var all []core.Result
	for r := range res.All() {
		all = append(all, r)
	}
	return all
}

// remains returns how many units of the first limit remain.
func (l *limiter) remains() int64 { return l.stored()[0].Remaining }

// is waits until what is stored is as it should be.
func (l *limiter) is(what string, holds func(core.Result) bool) {
	l.t.Helper()
	var all []core.Result
	if !check.Within(l.t, soon, what, func() bool {
		all = l.stored()
		for _, r := range all {
			if !holds(r) {
				return false
			}
		}
		return true
	}) {
		for _, r := range all {
			l.t.Logf("%s: %d of %d remain", r.Name, r.Remaining, r.Limit)
		}
	}
}

func whole(r core.Result) bool { return r.Remaining == r.Limit }

// together calls f n times at once, and waits.
func together(n int, f func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { f(i) })
	}
	all.Wait()
}
