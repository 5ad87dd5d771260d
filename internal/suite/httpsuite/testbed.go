package httpsuite

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/mini"
	"github.com/redislimit/redislimit/internal/testkit/redisclient"
	"github.com/redislimit/redislimit/keyfunc"
)

// start is the instant at which the clock stands in every case.
var start = time.UnixMicro(1_800_000_012_345_678)

// ipKey is the key of [keyfunc.IP] for all clients of the suite. fallbackKey is the key of a client whose own key is missing.
const (
	ipKey       = "ip:127.0.0.1"
	fallbackKey = "peer:127.0.0.1"
)

// A testbed is the environment of one case: the adapter, and a Redis whose clock stands.
type testbed struct {
	*testing.T
	adapter Adapter
	redis   *miniredis.Miniredis
	client  *redis.Client
	now     time.Time
	logs    *logs
}

func newTestbed(t *testing.T, a Adapter) *testbed {
	t.Helper()
	server := mini.Redis(t)
	server.SetTime(start)
	client := redisclient.New(t, &redis.Options{
		Addr: server.Addr(), DialTimeout: testTimeout, ReadTimeout: testTimeout, WriteTimeout: testTimeout, PoolTimeout: testTimeout,
	})
	return &testbed{t, a, server, client, start, captureLogs(t)}
}

func (b *testbed) advance(d time.Duration) {
	b.now = b.now.Add(d)
	b.redis.SetTime(b.now)
}

// limiter returns a limiter with the name that most cases use.
func (b *testbed) limiter(limits ...core.Option) *core.Limiter { return b.named("api", limits...) }

// named returns a limiter that decides only by Redis, because a deny cache would not notice that the test moves the clock.
// It waits for Redis as long as a busy machine may need.
func (b *testbed) named(name string, limits ...core.Option) *core.Limiter {
	return core.MustNew(b.client, name, append(limits, core.FailClosed(), core.DenyCache(0), core.Timeout(testTimeout))...)
}

// fixed returns a limit by address, in fixed windows of a minute.
func (b *testbed) fixed(n int64) Limit { return b.namedFixed("api", n) }

func (b *testbed) namedFixed(name string, n int64) Limit {
	return Limit{Limiter: b.named(name, core.FixedWindow(core.PerMinute(n))), Key: keyfunc.IP()}
}

// wantLeft checks how many units remain of key, which only the requests of the test may have charged.
func (b *testbed) wantLeft(lim *core.Limiter, key string, want int64) {
	b.Helper()
	if got := b.left(lim, key); got != want {
		b.Errorf("of key %s of limiter %s %d units remain, want %d", key, lim.Name(), got, want)
	}
}

func (b *testbed) left(lim *core.Limiter, key string) int64 {
	b.Helper()
	res, err := lim.Peek(context.Background(), key)
	if err != nil {
		b.Fatal(err)
	}
	return res.Remaining
}

// until waits until another goroutine has done something. It ends the test if this takes too long.
func (b *testbed) until(what string, done func() bool) {
	b.Helper()
	if !check.Eventually(b, what, done) {
		b.FailNow()
	}
}

// logs is everything that was logged during a test.
type logs struct{ check.Log }

// captureLogs replaces the default logger until the test ends.
func captureLogs(t *testing.T) *logs {
	l := &logs{}
	old := slog.Default()
	t.Cleanup(func() { slog.SetDefault(old) })
	slog.SetDefault(slog.New(slog.NewTextHandler(l, nil)))
	return l
}

// lines counts the lines of a level, except for lines about outages. Those are logged in the background, and may belong to
// an earlier test whose server has ended.
func (l *logs) lines(level string) int {
	n := 0
	for line := range strings.Lines(l.String()) {
		if strings.Contains(line, "level="+level) && !strings.Contains(line, `msg="redislimit: redis `) {
			n++
		}
	}
	return n
}
