package recipes_test

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/keyfunc"
	httplimit "github.com/redislimit/redislimit/nethttp"
)

// tryOut serves next by lim, which denies nothing unless enforce is set.
func tryOut(lim *core.Limiter, enforce bool, next http.Handler) http.Handler {
	if enforce {
		return httplimit.Middleware(lim, keyfunc.IP())(next)
	}
	return httplimit.Middleware(lim, keyfunc.IP(), guard.DryRun())(next)
}

func Example_tryOut() {
	limit, err := core.ParseLimit("token_bucket 2/1m")
	if err != nil {
		panic(err)
	}
	var denied atomic.Int64
	lim := core.MustNew(rdb, "tried", limit, core.Observe(func(_ context.Context, e core.Event) {
		if e.Kind == core.EventDecision && e.Err == nil && !e.Result.Allowed {
			denied.Add(1)
		}
	}))
	handler := tryOut(lim, false, newMux())
	for range 3 {
		show(get(handler, "/"))
	}
	fmt.Println("would be denied:", denied.Load())
	show(get(tryOut(lim, true, newMux()), "/"), "Retry-After")
	// Output:
	// 200
	// 200
	// 200
	// would be denied: 1
	// 429 30
}
