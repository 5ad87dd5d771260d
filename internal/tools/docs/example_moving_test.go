package docs_test

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	echolimit "github.com/redislimit/redislimit/echo"
	"github.com/redislimit/redislimit/keyfunc"
	httplimit "github.com/redislimit/redislimit/nethttp"
)

// The Examples in this file are the code that docs/moving.md shows.

var (
	rdb = redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
	mux = http.NewServeMux()
	old http.Handler
)

func Example_dryRun() {
	var wouldDeny atomic.Int64
	lim := core.MustNew(rdb, "api", core.FixedWindow(core.PerMinute(100)),
		core.Observe(func(_ context.Context, e core.Event) {
			if e.Kind == core.EventDecision && e.Err == nil && !e.Result.Allowed {
				wouldDeny.Add(1)
			}
		}))
	handler := httplimit.Middleware(lim, keyfunc.IP(), guard.DryRun())(old) // old still has the old limiter

	_ = handler
}

func Example_moved() {
	lim := core.MustNew(rdb, "api", core.FixedWindow(core.PerMinute(100)))
	handler := httplimit.Middleware(lim, keyfunc.IP())(mux)

	_ = handler
}

// moved uses everything that the tables of docs/moving.md name, as TestMovingRows checks.
func moved(
	ctx context.Context, r keyfunc.Request, res core.Result, lim *core.Limiter, limits []core.Limit, f func(keyfunc.Request) bool,
	fs []keyfunc.Func, cidrs []string, name, key string, n, rate, burst int64, d, period time.Duration, h http.Handler,
) []any {
	allow, err := lim.Allow(ctx, key)
	allowN, _ := lim.AllowN(ctx, key, n)
	granted, _, _ := lim.AllowUpTo(ctx, key, n)
	parsed, _ := core.ParseRate("100/m")
	with, _ := lim.With(limits...)
	made, _ := core.New(rdb, name, limits[0])
	memory, _ := core.NewMemory(name, core.FixedWindow(core.Per(n, d)))
	fixed, _ := core.New(rdb, name, core.FixedWindow(core.Per(n, d)))
	parsedLimit, _ := core.ParseLimit("fixed_window 100/1m aligned")
	peeked, _ := lim.Peek(ctx, key)
	waited, _ := lim.Wait(ctx, key)
	waitedN, _ := lim.WaitN(ctx, key, n)
	known := func(string) bool { return true }
	counted := func(int) bool { return true }
	return []any{
		allow, allowN, granted, errors.Is(err, core.ErrInvalidCost), lim.Peek, lim.Reset, parsed, with, made, res.RetryAfter == core.Never, r.Method() == "GET",
		core.Prefix(name), core.Timeout(d), core.FailClosed(), core.Observe(nil), core.Per(n, d), core.Per(1, 2*time.Second), core.Per(n, period),
		core.TokenBucket(core.PerSecond(n), core.Burst(burst)), core.GCRA(core.Per(rate, period), core.Burst(burst)), core.Burst(n),
		core.FixedWindow(core.Per(n, d)), core.SlidingWindowCounter(core.Per(n, d)),
		keyfunc.IP(), keyfunc.IP(keyfunc.IPv4Prefix(int(n)), keyfunc.IPv6Prefix(int(n))), keyfunc.IP(keyfunc.TrustedProxies("10.0.0.0/16")),
		keyfunc.IP(keyfunc.TrustedProxies(cidrs...)), keyfunc.IP(keyfunc.TrustedHeader(name)),
		keyfunc.Global(), keyfunc.Join(fs...), keyfunc.Join(keyfunc.IP(), keyfunc.Route()), keyfunc.BasicAuth(), keyfunc.APIKey(name, keyfunc.Known(known)),
		memory, fixed, httplimit.Middleware(lim, keyfunc.IP()), core.FixedWindow(core.PerMinute(n), core.Aligned()), parsedLimit,
		keyfunc.Header(name), keyfunc.APIKey(name), guard.AlsoLimit(lim, keyfunc.Global()), guard.DryRun(), core.FailLocal(), core.Aligned(),
		core.TokenBucket(core.Per(1, d), core.Burst(burst)), peeked, peeked.Remaining, waited, waitedN, core.Unlimited(),
		hops(int(n)), guard.Skip(f), guard.NoHeaders(), guard.ResetInSeconds(), guard.HeaderPrefix("X-Rate-Limit-"), guard.CountIf(counted),
		guard.Cost(func(keyfunc.Request) int64 { return n }), guard.LimiterFor(func(keyfunc.Request) (*core.Limiter, error) { return lim, nil }),
		httplimit.OnDenied(h), echolimit.OnError(func(echo.Context) error { return nil }),
	}
}

func hops(n int) []keyfunc.Func {
	return []keyfunc.Func{keyfunc.IP(keyfunc.TrustedHops(n)), keyfunc.IP(keyfunc.TrustedHops(n + 1))}
}

var _ = moved
