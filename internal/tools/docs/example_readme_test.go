package docs_test

import (
	"net/http"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/keyfunc"
	httplimit "github.com/redislimit/redislimit/nethttp"
)

// The Examples in this file are the recipes that README.md shows.

type userKey struct{}

var (
	lim           = core.MustNew(rdb, "api", core.TokenBucket(core.PerMinute(100)))
	login, report http.Handler
)

func isIssued(string) bool { return true }

func planOf(keyfunc.Request) core.Limit { return core.TokenBucket(core.PerMinute(6000)) }

func Example_behindAProxy() {
	key := keyfunc.IP(keyfunc.TrustedProxies("10.0.0.0/16"))
	handler := httplimit.Middleware(lim, key)(mux)

	_ = handler
}

func Example_apiKeyWithAPlan() {
	byPlan := guard.LimiterFor(func(r keyfunc.Request) (*core.Limiter, error) {
		return lim.With(planOf(r)) // for example core.TokenBucket(core.PerMinute(6000))
	})
	handler := httplimit.Middleware(lim, keyfunc.APIKey("X-API-Key", keyfunc.Known(isIssued)), byPlan)(mux)

	_ = handler
}

func Example_login() {
	logins := core.MustNew(rdb, "logins", core.SlidingWindowLog(core.Per(5, 15*time.Minute)), core.FailClosed())
	failures := guard.CountIf(func(status int) bool { return status != http.StatusOK })
	mux.Handle("POST /login", httplimit.Middleware(logins, keyfunc.IP(), failures)(login))
}

func Example_dailyQuota() {
	lim := core.MustNew(rdb, "api",
		core.TokenBucket(core.PerSecond(10), core.Burst(30)),
		core.FixedWindow(core.PerDay(5000), core.In("Europe/Berlin")))

	_ = lim
}

func Example_concurrency() {
	reports := core.MustNew(rdb, "reports", core.InFlight(2))
	mux.Handle("GET /report", httplimit.Middleware(reports, keyfunc.User(userKey{}))(report))
}
