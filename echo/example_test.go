package echolimit_test

import (
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/labstack/echo/v4"
	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	echolimit "github.com/redislimit/redislimit/echo"
	"github.com/redislimit/redislimit/keyfunc"
)

func ExampleMiddleware() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
	lim := core.MustNew(rdb, "api", core.TokenBucket(core.PerMinute(100)))

	e := echo.New()
	e.Use(echolimit.Middleware(lim, keyfunc.IP()))
	e.GET("/", func(c echo.Context) error { return c.String(http.StatusOK, "hello") })
	log.Fatal(e.Start("localhost:8080"))
}

// limited returns an app whose "/" admits one request per hour from each client.
func limited(handler echo.HandlerFunc, key keyfunc.Func, options ...guard.Option) *echo.Echo {
	lim, _ := core.NewMemory("api", core.FixedWindow(core.PerHour(1)))
	e := echo.New()
	e.GET("/", handler, echolimit.Middleware(lim, key, options...))
	return e
}

// get requests "/" from h and prints the answer.
func get(h http.Handler) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/?tenant=acme", nil))
	fmt.Println(w.Code, strings.TrimSpace(w.Body.String()))
}

func hello(c echo.Context) error { return c.String(http.StatusOK, "hello") }

// The application's error handler finds the decision in the error.
func ExampleMiddleware_errorHandler() {
	e := limited(hello, keyfunc.IP())
	e.HTTPErrorHandler = func(err error, c echo.Context) {
		if denied := (*guard.DeniedError)(nil); errors.As(err, &denied) {
			_ = c.JSON(http.StatusTooManyRequests, map[string]any{"error": "slow down", "limit": denied.Result.Limit})
			return
		}
		e.DefaultHTTPErrorHandler(err, c)
	}
	get(e)
	get(e)
	// Output:
	// 200 hello
	// 429 {"error":"slow down","limit":1}
}

// The application answers denied requests itself, without its error handler.
func ExampleOnDenied() {
	e := limited(hello, keyfunc.IP(), echolimit.OnDenied(func(c echo.Context) error {
		res, _ := echolimit.Result(c)
		return c.JSON(http.StatusTooManyRequests, map[string]any{"error": "slow down", "limit": res.Limit})
	}))
	get(e)
	get(e)
	// Output:
	// 200 hello
	// 429 {"error":"slow down","limit":1}
}

// A request can be counted by anything that Echo knows about it.
func ExampleKey() {
	byTenant := echolimit.Key(func(c echo.Context) (string, error) {
		if c.QueryParam("tenant") == "" {
			return "", keyfunc.ErrNoKey
		}
		return "tenant:" + c.QueryParam("tenant"), nil
	})
	get(limited(hello, byTenant))
	// Output: 200 hello
}

// A request that turns out to cost nothing, such as one that is answered from a cache, does not count.
func ExampleSetCost() {
	h := limited(func(c echo.Context) error {
		echolimit.SetCost(c, 0)
		return c.String(http.StatusOK, "from the cache")
	}, keyfunc.IP(), guard.CostAfter())
	get(h)
	get(h)
	// Output:
	// 200 from the cache
	// 200 from the cache
}
