package outage

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/faultproxy"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

const limit = 20 // of most Limiters of this package, per hour: no window ends during a test

// timeouts are the Timeouts of the Limiters in each round. The first is far above the time of a healthy answer, even under
// the race detector. If the machine is too slow for a Timeout, the next round has a longer one.
var timeouts = []time.Duration{
	250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second,
}

// tooBusy is the lateness of the machine beyond which nothing can be said about a process that is not busy.
const tooBusy = 20 * time.Millisecond

// env is one server with a proxy in front of it. The client goes through the proxy. The admin bypasses the proxy, as a user
// whom no fault locks out.
type env struct {
	server *redistest.Instance
	proxy  *faultproxy.Proxy
	rdb    *redis.Client
	dial   redis.Options // the options of rdb and of further clients
	admin  *redis.Client
	tls    *terminator // nil without TLS
	ended  chan error  // receives when the command or server that the fault started has ended

	timeout time.Duration // the Timeout of the Limiters, on which some faults depend
}

// setup holds the parts in which the environments of tests differ.
type setup struct {
	config  []string // arguments of the server
	options func(*redis.Options)
	tls     bool
}

// withContextTimeout returns a setup whose client ends a call with its context, or the default of go-redis, which does not.
func withContextTimeout(enabled bool) setup {
	return setup{options: func(o *redis.Options) { o.ContextTimeoutEnabled = enabled }}
}

func clientName(contextTimeout bool) string {
	if contextTimeout {
		return "ContextTimeoutEnabled"
	}
	return "defaults"
}

func newEnv(tb testing.TB, s setup) *env {
	tb.Helper()
	config := append([]string{"--user", "admin", "on", "nopass", "~*", "+@all"}, s.config...)
	e := &env{server: redistest.Server(tb, config...), ended: make(chan error, 1), timeout: timeouts[0]}
	target := e.server.Addr
	o := &redis.Options{} // go-redis's defaults
	if s.tls {
		e.tls = newTerminator(tb, target)
		target = e.tls.addr
		o.TLSConfig = e.tls.client
	}
	e.proxy = faultproxy.New(tb, target)
	o.Addr = e.proxy.Addr()
	if s.options != nil {
		s.options(o)
	}
	e.dial = *o
	e.rdb = e.client(tb)
	e.admin = redis.NewClient(&redis.Options{Addr: e.server.Addr, Username: "admin", Password: "any", ReadTimeout: time.Minute})
	tb.Cleanup(func() { _ = e.admin.Close() })
	return e
}

// client returns another client like e.rdb. Limiters over one client share the state of its server. Limiters over two
// clients each find out on their own that the server is away.
func (e *env) client(tb testing.TB) *redis.Client {
	tb.Helper()
	o := e.dial
	rdb := redis.NewClient(&o)
	tb.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// used returns how many units Redis has stored as charged to key, as a Limiter that bypasses the proxy reads it.
func (e *env) used(tb testing.TB, name, key string) int64 {
	tb.Helper()
	auditor := core.MustNew(e.admin, name, core.FixedWindow(core.PerHour(limit)), core.FailClosed(), core.Timeout(time.Minute))
	res, err := auditor.Peek(tb.Context(), key)
	if err != nil {
		tb.Fatalf("reading what Redis has charged: %v", err)
	}
	return limit - res.Remaining
}

// expiring checks that every key of a Limiter has a TTL, and returns how many there are.
func expiring(tb testing.TB, rdb redis.Cmdable) int {
	tb.Helper()
	keys, err := rdb.Keys(tb.Context(), "rl:*").Result()
	check.OK(tb, err)
	for _, key := range keys {
		if ttl, err := rdb.PTTL(tb.Context(), key).Result(); err != nil || ttl <= 0 && ttl != -2 { // -2: the key has just expired
			tb.Errorf("key %s has a TTL of %v, %v; want one above 0", key, ttl, err)
		}
	}
	return len(keys)
}

// do runs a command as the admin.
func (e *env) do(tb testing.TB, command string) {
	tb.Helper()
	words := strings.Fields(command)
	args := make([]any, len(words))
	for i, word := range words {
		args[i] = word
	}
	if err := e.admin.Do(context.Background(), args...).Err(); err != nil {
		tb.Errorf("%s: %v", command, err)
	}
}

// limiter returns a Limiter over rdb with one fixed window, and its watcher.
func limiter(rdb core.Client, name string, options ...core.Option) (*core.Limiter, *watcher) {
	return watched(rdb, name, append([]core.Option{core.FixedWindow(core.PerHour(limit))}, options...)...)
}

// watched returns a Limiter over rdb, and its watcher.
func watched(rdb core.Client, name string, options ...core.Option) (*core.Limiter, *watcher) {
	w := newWatcher()
	w.limiter = core.MustNew(rdb, name, append(w.options(), options...)...)
	return w.limiter, w
}

// awaitRedis waits until Redis decides again. It uses Peek, which charges nothing.
func awaitRedis(tb testing.TB, l *core.Limiter, key string) {
	tb.Helper()
	var res core.Result
	var err error
	if !check.Eventually(tb, "Redis decides again", func() bool {
		res, err = l.Peek(tb.Context(), key)
		return err == nil && res.Source == core.SourceRedis
	}) {
		tb.Logf("the last answer was %+v, %v", res, err)
	}
}
