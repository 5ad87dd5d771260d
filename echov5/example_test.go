package echolimit_test

import (
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/labstack/echo/v5"
	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	echolimit "github.com/redislimit/redislimit/echov5"
	"github.com/redislimit/redislimit/keyfunc"
)

func ExampleMiddleware() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
	lim := core.MustNew(rdb, "api", core.TokenBucket(core.PerMinute(100)))

	e := echo.New()
	e.Use(echolimit.Middleware(lim, keyfunc.IP()))
	e.GET("/", func(c *echo.Context) error { return c.String(http.StatusOK, "hello") })
	log.Fatal(e.Start("localhost:8080"))
}

// The application's error handler finds the decision in the error.
func ExampleMiddleware_errorHandler() {
	lim := core.MustNewMemory("api", core.FixedWindow(core.PerHour(1)))
	e := echo.New()
	e.Use(echolimit.Middleware(lim, keyfunc.IP()))
	e.GET("/", func(c *echo.Context) error { return c.String(http.StatusOK, "hello") })
	others := e.HTTPErrorHandler
	e.HTTPErrorHandler = func(c *echo.Context, err error) {
		if denied := (*guard.DeniedError)(nil); errors.As(err, &denied) {
			_ = c.JSON(http.StatusTooManyRequests, map[string]any{"error": "slow down", "limit": denied.Result.Limit})
			return
		}
		others(c, err)
	}
	for range 2 {
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		fmt.Println(w.Code, strings.TrimSpace(w.Body.String()))
	}
	// Output:
	// 200 hello
	// 429 {"error":"slow down","limit":1}
}
