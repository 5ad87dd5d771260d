package outage

import (
	"context"
	"crypto/tls"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/faultproxy"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

const (
	limit   = 20                     // per hour, of every Limiter here: no window ends during a test
	timeout = 250 * time.Millisecond // far above a healthy answer, also under the race detector
)

// world is one server with a proxy before it. The client goes through the proxy; admin goes past it, as a user that no
// fault locks out.
type world struct {
	server *redistest.Instance
	proxy  *faultproxy.Proxy
	rdb    *redis.Client
	admin  *redis.Client
	tls    *terminator // where the fault has one
	until  chan error  // the end of what the fault has started
}

// setup holds what the worlds of a test differ in.
type setup struct {
	config  []string // of the server
	options func(*redis.Options)
	tls     bool
}

func newWorld(tb testing.TB, s setup) *world {
	tb.Helper()
	config := append([]string{"--user", "admin", "on", "nopass", "~*", "&*", "+@all"}, s.config...)
	w := &world{server: redistest.Server(tb, config...), until: make(chan error, 1)}
	target := w.server.Addr
	o := &redis.Options{} // go-redis's defaults
	if s.tls {
		w.tls = newTerminator(tb, target)
		target = w.tls.addr
		o.TLSConfig = &tls.Config{RootCAs: w.tls.roots, ServerName: "localhost", MinVersion: tls.VersionTLS12}
	}
	w.proxy = faultproxy.New(tb, target)
	o.Addr = w.proxy.Addr()
	if s.options != nil {
		s.options(o)
	}
	w.rdb = redis.NewClient(o)
	tb.Cleanup(func() { _ = w.rdb.Close() })
	w.admin = redis.NewClient(&redis.Options{Addr: w.server.Addr, Username: "admin", Password: "any", ReadTimeout: time.Minute})
	tb.Cleanup(func() { _ = w.admin.Close() })
	return w
}

// used returns what Redis has stored as charged to key, as a Limiter beside the proxy reads it.
func (w *world) used(t *testing.T, name, key string) int64 {
	t.Helper()
	auditor := core.MustNew(w.admin, name, core.FixedWindow(core.PerHour(limit)), core.FailClosed(), core.Timeout(time.Minute))
	res, err := auditor.Peek(t.Context(), key)
	if err != nil {
		t.Fatalf("the auditor: %v", err)
	}
	return limit - res.Remaining
}

// expiring checks that every key of a Limiter has a TTL, and returns how many there are.
func expiring(t *testing.T, rdb redis.Cmdable) int {
	t.Helper()
	keys, err := rdb.Keys(t.Context(), "rl:*").Result()
	if err != nil {
		t.Error(err)
	}
	for _, key := range keys {
		if ttl, err := rdb.PTTL(t.Context(), key).Result(); err != nil || ttl <= 0 && ttl != -2 { // -2: it has just expired
			t.Errorf("%s has a TTL of %v, %v", key, ttl, err)
		}
	}
	return len(keys)
}

// do runs a command of the admin's.
func (w *world) do(tb testing.TB, command string) {
	tb.Helper()
	words := strings.Fields(command)
	args := make([]any, len(words))
	for i, word := range words {
		args[i] = word
	}
	if err := w.admin.Do(context.Background(), args...).Err(); err != nil {
		tb.Errorf("%s: %v", command, err)
	}
}

// limiter returns a Limiter over rdb, of one fixed window, and what watches it.
func limiter(rdb core.Client, name string, options ...core.Option) (*core.Limiter, *watcher) {
	w := newWatcher()
	options = append(append(w.options(), core.FixedWindow(core.PerHour(limit))), options...)
	return core.MustNew(rdb, name, options...), w
}

// back waits until Redis decides again. It peeks: that charges nothing.
func back(t *testing.T, l *core.Limiter, key string) {
	t.Helper()
	var res core.Result
	var err error
	if !eventually(t, "Redis decides again", 15*time.Second, func() bool {
		res, err = l.Peek(t.Context(), key)
		return err == nil && res.Source == core.SourceRedis
	}) {
		t.Logf("the last answer: %+v, %v", res, err)
	}
}
