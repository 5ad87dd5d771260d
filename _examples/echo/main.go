// Command echo serves three rate-limited routes with Echo. Without -redis it
// starts an embedded Redis, so that "go run ./_examples/echo" needs nothing else.
package main

import (
	"errors"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/redislimit/redislimit/core/guard"
	echolimit "github.com/redislimit/redislimit/echo"
	"github.com/redislimit/redislimit/internal/demo"
	"github.com/redislimit/redislimit/keyfunc"
)

func main() {
	demo.Main("echo", func(app *demo.App) demo.Server { return demo.HTTPServer(routes(app)) })
}

func routes(app *demo.App) http.Handler {
	byIP := echolimit.Middleware(app.Home, keyfunc.IP())
	byUser := echolimit.Middleware(app.User, keyfunc.User("user"))
	byKey := echolimit.Middleware(app.APIKey, keyfunc.APIKey("X-API-Key", keyfunc.Known(demo.Issued)))

	e := echo.New()
	e.HTTPErrorHandler = problem
	e.GET("/", say("hello"), byIP)
	e.GET("/user", say("hello, user"), authenticate, byUser)
	e.GET("/key", say("hello, key"), byKey)
	e.GET("/healthz", say("ok"))
	return e
}

func say(text string) echo.HandlerFunc {
	return func(c echo.Context) error { return c.String(http.StatusOK, text+"\n") }
}

// authenticate puts the user into the context. It accepts any password, because it is a demo.
func authenticate(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		user, _, _ := c.Request().BasicAuth()
		if user == "" {
			c.Response().Header().Set("WWW-Authenticate", demo.Challenge)
			return echo.ErrUnauthorized
		}
		c.Set("user", user)
		return next(c)
	}
}

// problem renders every error, those of the limiter included, as problem details.
func problem(err error, c echo.Context) {
	status := http.StatusInternalServerError
	if known := (*echo.HTTPError)(nil); errors.As(err, &known) {
		status = known.Code
	}
	if !c.Response().Committed {
		_ = c.Blob(status, guard.ProblemType, guard.Problem(status, err)) // an error means that the client has disconnected
	}
}
