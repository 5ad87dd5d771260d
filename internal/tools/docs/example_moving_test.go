package docs_test

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"

	"github.com/gofiber/fiber/v2"
	"github.com/labstack/echo/v4"
	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	echolimit "github.com/redislimit/redislimit/echo"
	fiberlimit "github.com/redislimit/redislimit/fiber"
	"github.com/redislimit/redislimit/keyfunc"
	httplimit "github.com/redislimit/redislimit/nethttp"
)

// These Examples are the code that docs/moving.md shows after "before". They are in
// this package, so that they are not part of the documentation of another.

var (
	rdb = redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
	mux = http.NewServeMux()
	old http.Handler
	ctx = context.Background()
)

func Example_dryRun() {
	var wouldDeny atomic.Int64
	lim := core.MustNew(rdb, "api", core.FixedWindow(core.PerMinute(100)),
		core.Observe(func(_ context.Context, e core.Event) {
			if e.Kind == core.EventDecision && e.Err == nil && !e.Result.Allowed {
				wouldDeny.Add(1)
			}
		}))
	handler := httplimit.Middleware(lim, keyfunc.IP(), guard.DryRun())(old) // old has the old limiter

	_ = handler
}

func Example_ulule() {
	lim := core.MustNew(rdb, "api", core.FixedWindow(core.PerMinute(100)))
	handler := httplimit.Middleware(lim, keyfunc.IP())(mux)

	_ = handler
}

// chi is the part of chi's Router that the Example uses.
type chi interface {
	Use(middlewares ...func(http.Handler) http.Handler)
}

func Example_httprate() {
	_ = func(r chi) {
		lim := core.MustNew(rdb, "api", core.SlidingWindowCounter(core.PerMinute(100)))
		r.Use(httplimit.Middleware(lim, keyfunc.IP(keyfunc.TrustedProxies("10.0.0.0/8"))))
	}
}

func Example_tollbooth() {
	lim := core.MustNew(rdb, "api", core.TokenBucket(core.PerSecond(10)))
	handler := httplimit.Middleware(lim, keyfunc.IP())(mux)

	_ = handler
}

func Example_redisRate() {
	lim := core.MustNew(rdb, "projects", core.GCRA(core.PerSecond(10)))
	res, err := lim.Allow(ctx, "project:123")
	if err != nil {
		panic(err)
	}
	fmt.Println("allowed", res.Allowed, "remaining", res.Remaining)
}

func Example_fiber() {
	app := fiber.New()
	lim := core.MustNew(rdb, "api", core.FixedWindow(core.PerMinute(20)))
	app.Use(fiberlimit.Middleware(lim, keyfunc.IP()))
}

func Example_echo() {
	e := echo.New()
	lim := core.MustNew(rdb, "api", core.TokenBucket(core.PerSecond(10), core.Burst(30)))
	e.Use(echolimit.Middleware(lim, keyfunc.IP()))
}
