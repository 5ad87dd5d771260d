package suite_test

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	echolimit "github.com/redislimit/redislimit/echov5"
	"github.com/redislimit/redislimit/keyfunc"
)

// around contains middlewares that replace Echo's response with their own.
var around = map[string]echo.MiddlewareFunc{
	"none":                func(next echo.HandlerFunc) echo.HandlerFunc { return next },
	"Gzip":                middleware.Gzip(),
	"Gzip of long bodies": middleware.GzipWithConfig(middleware.GzipConfig{MinLength: 1 << 20}),
	"BodyDump":            middleware.BodyDump(func(*echo.Context, []byte, []byte, error) {}),
	"one that hides Echo's": func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			inner := c.Response()
			c.SetResponse(struct{ http.ResponseWriter }{inner})
			defer c.SetResponse(inner)
			return next(c)
		}
	},
}

// TestResponseOfMiddleware mounts a middleware that delays the handler's response, around the limit or behind it: CountIf must get the
// status that the client gets.
func TestResponseOfMiddleware(t *testing.T) {
	for name, other := range around {
		for where, order := range map[string]func(limit echo.MiddlewareFunc) []echo.MiddlewareFunc{
			"around": func(limit echo.MiddlewareFunc) []echo.MiddlewareFunc { return []echo.MiddlewareFunc{other, limit} },
			"behind": func(limit echo.MiddlewareFunc) []echo.MiddlewareFunc { return []echo.MiddlewareFunc{limit, other} },
		} {
			for what, handler := range map[string]echo.HandlerFunc{
				"text":        func(c *echo.Context) error { return c.String(http.StatusNotFound, "not here") },
				"JSON":        func(c *echo.Context) error { return c.JSON(http.StatusCreated, "made") },
				"status":      func(c *echo.Context) error { return c.NoContent(http.StatusNoContent) },
				"body":        func(c *echo.Context) error { _, err := c.Response().Write([]byte("served")); return err },
				"none":        func(*echo.Context) error { return nil },
				"error":       func(*echo.Context) error { return echo.NewHTTPError(http.StatusTeapot, "teapot") },
				"other error": func(*echo.Context) error { return errors.New("of the handler") },
				"late error": func(c *echo.Context) error {
					_ = c.String(http.StatusAccepted, "accepted")
					return errors.New("of the handler")
				},
				"long": func(c *echo.Context) error {
					return c.Blob(http.StatusConflict, "text/plain", bytes.Repeat([]byte("long "), 1000))
				},
				"flushed": func(c *echo.Context) error {
					c.Response().WriteHeader(http.StatusGone)
					return http.NewResponseController(c.Response()).Flush()
				},
			} {
				if what == "flushed" && name == "one that hides Echo's" {
					continue // its response cannot be flushed
				}
				t.Run(name+"/"+where+"/"+what, func(t *testing.T) {
					var counted []int
					e := echo.New()
					e.Use(order(echolimit.Middleware(limiter(t), keyfunc.IP(), guard.CountIf(func(status int) bool {
						counted = append(counted, status)
						return true
					})))...)
					e.GET("/", handler)
					if status := get(t, e).Code; !slices.Equal(counted, []int{status}) {
						t.Errorf("CountIf got %v, want one call with %d, the client's status", counted, status)
					}
				})
			}
		}
	}
}

// TestOnDeniedBehindMiddleware checks the status of denied requests: it must be the status that the handler of OnDenied sets, or otherwise
// 429, whatever middleware is around.
func TestOnDeniedBehindMiddleware(t *testing.T) {
	for name, other := range around {
		for what, c := range map[string]struct {
			handler echo.HandlerFunc
			status  int
		}{
			"nothing": {func(*echo.Context) error { return nil }, http.StatusTooManyRequests},
			"body":    {func(c *echo.Context) error { _, err := c.Response().Write([]byte("no")); return err }, http.StatusTooManyRequests},
			"status":  {func(c *echo.Context) error { return c.JSON(http.StatusForbidden, "no") }, http.StatusForbidden},
			"error":   {func(*echo.Context) error { return echo.NewHTTPError(http.StatusTeapot, "no") }, http.StatusTeapot},
		} {
			t.Run(name+"/"+what, func(t *testing.T) {
				e := echo.New()
				e.Use(other, echolimit.Middleware(limiter(t), keyfunc.IP(), echolimit.OnDenied(c.handler)))
				e.GET("/", func(c *echo.Context) error { return c.String(http.StatusOK, "served") })
				if status := get(t, e).Code; status != http.StatusOK {
					t.Errorf("the first request: got status %d, want 200", status)
				}
				if status := get(t, e).Code; status != c.status {
					t.Errorf("the second request: got status %d, want %d", status, c.status)
				}
			})
		}
	}
}

// limiter returns a limiter that admits one request per day.
func limiter(t *testing.T) *core.Limiter {
	t.Helper()
	lim := core.MustNewMemory("api", core.FixedWindow(core.PerDay(1)))
	t.Cleanup(func() { _ = lim.Close() })
	return lim
}

func get(t *testing.T, h http.Handler) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
	r.Header.Set("Accept-Encoding", "gzip")
	h.ServeHTTP(w, r)
	return w
}
