package echolimit_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/labstack/echo/v5"

	"github.com/redislimit/redislimit/core"
	echolimit "github.com/redislimit/redislimit/echov5"
	"github.com/redislimit/redislimit/keyfunc"
)

// TestGivenBack checks that a request has its original response and context again after the middleware has returned. By then, the context
// of the handler, which belonged to the slots, must have ended.
func TestGivenBack(t *testing.T) {
	t.Parallel()
	lim := core.MustNewMemory("api", core.InFlight(1), core.FixedWindow(core.PerDay(1)))
	t.Cleanup(func() { _ = lim.Close() })
	answer := func(c *echo.Context) error { return c.NoContent(http.StatusNoContent) }
	within := func() error { return errors.New("no handler ran") }
	e := echo.New()
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			response := c.Response()
			err := next(c)
			if c.Response() != response || c.Request().Context().Err() != nil {
				t.Errorf("got a %T, want the original %T; the context has the error %v, want none", c.Response(), response, c.Request().Context().Err())
			}
			return err
		}
	}, echolimit.Middleware(lim, keyfunc.IP(), echolimit.OnDenied(answer)))
	e.GET("/", func(c *echo.Context) error {
		within = c.Request().Context().Err
		return answer(c)
	})
	for range 2 { // served, and denied
		e.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody))
	}
	if err := within(); !errors.Is(err, context.Canceled) {
		t.Errorf("the context of the handler has the error %v, want Canceled, because the slots are free", err)
	}
}
