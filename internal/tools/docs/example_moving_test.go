package docs_test

import (
	"context"
	"net/http"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/keyfunc"
	httplimit "github.com/redislimit/redislimit/nethttp"
)

// These Examples are the code that docs/moving.md shows.

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
	handler := httplimit.Middleware(lim, keyfunc.IP(), guard.DryRun())(old) // old has the old limiter

	_ = handler
}

func Example_moved() {
	lim := core.MustNew(rdb, "api", core.FixedWindow(core.PerMinute(100)))
	handler := httplimit.Middleware(lim, keyfunc.IP())(mux)

	_ = handler
}
