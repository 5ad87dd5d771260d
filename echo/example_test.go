package echolimit_test

import (
	"errors"
	"log"
	"net/http"

	"github.com/labstack/echo/v4"
	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	echolimit "github.com/redislimit/redislimit/echo"
	"github.com/redislimit/redislimit/keyfunc"
)

func ExampleMiddleware() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	lim := core.MustNew(rdb, "api", core.TokenBucket(core.PerMinute(100)))

	e := echo.New()
	e.Use(echolimit.Middleware(lim, keyfunc.IP()))
	e.GET("/", func(c echo.Context) error { return c.String(http.StatusOK, "hello") })
	log.Fatal(e.Start("localhost:8080"))
}

// The application's error handler finds the decision in the error.
func ExampleMiddleware_errorHandler() {
	e := echo.New()
	e.HTTPErrorHandler = func(err error, c echo.Context) {
		if denied := (*guard.DeniedError)(nil); errors.As(err, &denied) {
			_ = c.JSON(http.StatusTooManyRequests, map[string]any{"error": "slow down", "limit": denied.Result.Limit})
			return
		}
		e.DefaultHTTPErrorHandler(err, c)
	}
}

func ExampleOnDenied() {
	_ = echolimit.OnDenied(func(c echo.Context) error { // pass it to a Middleware
		res, _ := echolimit.Result(c)
		return c.JSON(http.StatusTooManyRequests, map[string]any{"error": "slow down", "limit": res.Limit})
	})
}

func ExampleOnError() {
	_ = echolimit.OnError(func(c echo.Context) error { // pass it to a Middleware
		return c.String(http.StatusServiceUnavailable, "try again soon")
	})
}

func ExampleKey() {
	_ = echolimit.Key(func(c echo.Context) (string, error) { // pass it to a Middleware
		if c.Param("tenant") == "" {
			return "", keyfunc.ErrNoKey
		}
		return "tenant:" + c.Param("tenant"), nil
	})
}

func ExampleResult() {
	_ = func(c echo.Context) error {
		res, _ := echolimit.Result(c)
		return c.JSON(http.StatusOK, map[string]any{"left": res.Remaining})
	}
}
