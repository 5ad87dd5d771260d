package suite_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"

	"github.com/redislimit/redislimit/core"
	echolimit "github.com/redislimit/redislimit/echov5"
	"github.com/redislimit/redislimit/internal/suite/httpsuite"
)

func TestHTTP(t *testing.T)    { httpsuite.Exercise(t, echoFramework()) }
func TestLeavers(t *testing.T) { httpsuite.Leavers(t, echoFramework()) }

func TestIPAllocations(t *testing.T) {
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
	httpsuite.IPAllocates(t, echolimit.Request(echo.New().NewContext(r, nil)), 1)
}

func TestUnanswered(t *testing.T) {
	httpsuite.Unanswered(t, func(limit httpsuite.Limit, fails func() error) http.Handler {
		e := echo.New()
		e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
			return func(c *echo.Context) error {
				_ = next(c)
				return nil
			}
		}, middlewareEcho(limit))
		e.GET("/", func(*echo.Context) error { return fails() })
		return e
	})
}

func TestHalfClosed(t *testing.T) {
	t.Parallel()
	httpsuite.HalfClosed(t, func(limit httpsuite.Limit, fails error, late func()) http.Handler {
		e := echo.New()
		e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
			return func(c *echo.Context) error {
				err := next(c)
				if !errors.Is(err, fails) {
					return err
				}
				late()
				return c.NoContent(http.StatusUnauthorized)
			}
		}, middlewareEcho(limit))
		e.GET("/", func(*echo.Context) error { return fails })
		return e
	})
}

func BenchmarkAdapter(b *testing.B) {
	httpsuite.Benchmark(b, func(mounts ...httpsuite.Mount) func() int {
		e := echo.New()
		e.Use(mountEcho(mounts)...)
		e.GET("/a", func(c *echo.Context) error {
			_, err := c.Response().Write([]byte("served"))
			return err
		})
		return httpsuite.DriveHTTP(e)
	})
}

func echoFramework() httpsuite.Adapter {
	return httpsuite.Adapter{
		Name: "Echo v5", Start: startEcho,
		Lacks: map[httpsuite.Ability]string{
			httpsuite.Interim: "Echo takes an interim status for the final one",
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
		e.Pre(middleware.Recover())
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

// renderEcho is an HTTPErrorHandler that answers an error as the suite demands.
func renderEcho(c *echo.Context, err error) {
	response, status := echo.ResolveResponseStatus(c.Response(), err)
	if response != nil && response.Committed {
		return
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
		return beforeEcho(func(c *echo.Context) {
			if user := c.Request().Header.Get(httpsuite.UserHeader); user != "" {
				c.Set(httpsuite.UserKey.(string), user)
				c.SetRequest(httpsuite.SignIn(c.Request(), httpsuite.TypedUserKey, user))
			}
		})
	case httpsuite.AddHeader:
		return beforeEcho(func(c *echo.Context) { c.Response().Header().Add(m.Name, m.Value) })
	case httpsuite.Log:
		return middleware.RequestLoggerWithConfig(middleware.RequestLoggerConfig{
			LogStatus: true, HandleError: true,
			LogValuesFunc: func(_ *echo.Context, v middleware.RequestLoggerValues) error {
				m.Saw(v.Status)
				return nil
			},
		})
	case httpsuite.CORS:
		return middleware.CORS("*")
	case httpsuite.Compress:
		return middleware.Gzip()
	case httpsuite.Limit:
		key := httpsuite.KeyOf(m, echolimit.Key, echolimit.Request, func(c *echo.Context) string { return c.Request().Header.Get(httpsuite.KeyHeader) })
		return echolimit.Middleware(m.Limiter, key, httpsuite.Options(m, handlerEcho, echolimit.OnDenied, echolimit.OnError)...)
	}
	panic(fmt.Sprintf("a mount %T", mount))
}

// beforeEcho returns a middleware that calls first, and then the next handler.
func beforeEcho(first func(*echo.Context)) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			first(c)
			return next(c)
		}
	}
}

func handlerEcho(h httpsuite.Handler) echo.HandlerFunc {
	limit := echolimit.NewAnswerer(httpsuite.AnswerOptions(h.Answers, handlerEcho, echolimit.OnDenied, echolimit.OnError)...)
	return func(c *echo.Context) error {
		return h.Serve(httpsuite.HTTPContext{
			W: c.Response(), R: c.Request(),
			Refuse: func(status int) error { return echo.NewHTTPError(status, "") },
			Show:   func() (core.Result, bool) { return echolimit.Result(c) },
			Charge: func(n int64) { echolimit.SetCost(c, n) },
			Reply:  func(decision core.Decision, err error) (bool, error) { return limit.Answer(c, decision, err) },
		})
	}
}
