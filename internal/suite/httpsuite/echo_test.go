package httpsuite_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/labstack/echo/v4"

	"github.com/redislimit/redislimit/core"
	echolimit "github.com/redislimit/redislimit/echo"
	"github.com/redislimit/redislimit/internal/suite/httpsuite"
)

func echoFramework() httpsuite.Adapter {
	return httpsuite.Adapter{
		Name: "Echo", Start: startEcho,
		Lacks: map[httpsuite.Ability]string{
			httpsuite.Interim: "Echo mistakes an interim status for the final one",
		},
		Patterns: map[httpsuite.MountPoint]string{
			httpsuite.Everywhere: "/g/users/:id",
			httpsuite.InGroup:    "/g/users/:id",
			httpsuite.OnRoute:    "/g/users/:id",
		},
	}
}

func startEcho(_ *testing.T, app httpsuite.App) *httpsuite.Server {
	e := echo.New()
	if app.Recover {
		e.Pre(recoverEcho)
	}
	if app.Renders {
		e.HTTPErrorHandler = renderEcho
	}
	e.Pre(mountEcho(app.Pre)...)
	e.Use(mountEcho(app.Use)...)
	for _, group := range app.Groups {
		g := e.Group(group.Prefix, mountEcho(group.Use)...)
		for _, route := range group.Routes {
			g.Any(httpsuite.Colons(route.Path), handlerEcho(route.Handler), mountEcho(route.Use)...)
		}
	}
	for _, route := range app.Routes {
		e.Any(httpsuite.Colons(route.Path), handlerEcho(route.Handler), mountEcho(route.Use)...)
	}
	return httpsuite.ServeHTTP(e, app)
}

// recoverEcho turns a panic into an error, as Echo's own middleware does.
func recoverEcho(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) (err error) {
		defer func() {
			if r := recover(); r != nil {
				err = fmt.Errorf("recovered: %v", r)
			}
		}()
		return next(c)
	}
}

// renderEcho is an HTTPErrorHandler. Like Echo's own, it recognizes an *echo.HTTPError only if the error is not wrapped.
func renderEcho(err error, c echo.Context) {
	if c.Response().Committed {
		return
	}
	status := http.StatusInternalServerError
	if he, ok := err.(*echo.HTTPError); ok { //nolint:errorlint // as Echo's own handler does
		status = he.Code
	}
	status, body := httpsuite.Render(err, status)
	if c.Request().Method == http.MethodHead {
		body = ""
	}
	_ = c.String(status, body) // fails only if the client has left
}

func mountEcho(mounts []httpsuite.Mount) []echo.MiddlewareFunc {
	return httpsuite.Each(mounts, middlewareEcho)
}

func middlewareEcho(mount httpsuite.Mount) echo.MiddlewareFunc {
	switch m := mount.(type) {
	case httpsuite.Auth:
		return beforeEcho(func(c echo.Context) {
			if user := c.Request().Header.Get(httpsuite.UserHeader); user != "" {
				c.Set(httpsuite.UserKey.(string), user)
				c.SetRequest(httpsuite.SignIn(c.Request(), httpsuite.TypedUserKey, user))
			}
		})
	case httpsuite.AddHeader:
		return beforeEcho(func(c echo.Context) { c.Response().Header().Add(m.Name, m.Value) })
	case httpsuite.Log:
		return func(next echo.HandlerFunc) echo.HandlerFunc {
			return func(c echo.Context) error {
				if err := next(c); err != nil {
					c.Error(err) // as Echo's own middleware does
				}
				m.Saw(c.Response().Status)
				return nil
			}
		}
	case httpsuite.CORS:
		return func(next echo.HandlerFunc) echo.HandlerFunc {
			return func(c echo.Context) error {
				if httpsuite.AllowOrigins(c.Response().Header(), c.Request()) {
					return c.NoContent(http.StatusNoContent)
				}
				return next(c)
			}
		}
	case httpsuite.Compress:
		return func(next echo.HandlerFunc) echo.HandlerFunc {
			return func(c echo.Context) error {
				z := httpsuite.Zip(c.Response().Writer)
				c.Response().Writer = z
				if err := next(c); err != nil {
					c.Error(err)
				}
				return z.Close()
			}
		}
	case httpsuite.Limit:
		key := httpsuite.KeyOf(m, echolimit.Key, echolimit.Request, func(c echo.Context) string { return c.Request().Header.Get(httpsuite.KeyHeader) })
		return echolimit.Middleware(m.Limiter, key, httpsuite.Options(m, handlerEcho, echolimit.OnDenied, echolimit.OnError)...)
	}
	panic(fmt.Sprintf("a mount %T", mount))
}

// beforeEcho returns a middleware that calls first before the next handler.
func beforeEcho(first func(echo.Context)) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			first(c)
			return next(c)
		}
	}
}

func handlerEcho(h httpsuite.Handler) echo.HandlerFunc {
	limit := echolimit.NewAnswerer(httpsuite.AnswerOptions(h.Answers, handlerEcho, echolimit.OnDenied, echolimit.OnError)...)
	return func(c echo.Context) error {
		return h.Serve(httpsuite.HTTPContext{
			W: c.Response(), R: c.Request(),
			Refuse: func(status int) error { return echo.NewHTTPError(status) },
			Show:   func() (core.Result, bool) { return echolimit.Result(c) },
			Charge: func(n int64) { echolimit.SetCost(c, n) },
			Reply:  func(decision core.Decision, err error) (bool, error) { return limit.Answer(c, decision, err) },
		})
	}
}

func TestEchoUnanswered(t *testing.T) {
	httpsuite.Unanswered(t, func(limit httpsuite.Limit, fails func() error) http.Handler {
		e := echo.New()
		e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
			return func(c echo.Context) error {
				_ = next(c)
				return nil
			}
		}, middlewareEcho(limit))
		e.GET("/", func(echo.Context) error { return fails() })
		return e
	})
}

func TestEchoHalfClosed(t *testing.T) {
	t.Parallel()
	httpsuite.HalfClosed(t, func(limit httpsuite.Limit, fails error, late func()) http.Handler {
		e := echo.New()
		e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
			return func(c echo.Context) error {
				err := next(c)
				if !errors.Is(err, fails) {
					return err
				}
				late()
				return c.NoContent(http.StatusUnauthorized)
			}
		}, middlewareEcho(limit))
		e.GET("/", func(echo.Context) error { return fails })
		return e
	})
}
