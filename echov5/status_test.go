package echolimit_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/labstack/echo/v5"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	echolimit "github.com/redislimit/redislimit/echov5"
	"github.com/redislimit/redislimit/keyfunc"
)

// TestUnanswered has middleware further out take an error, or net/http a panic, for which
// nothing is written. Such requests are settled, and not held for ever.
func TestUnanswered(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		fails  echo.HandlerFunc
		status int
	}{
		{"error", func(*echo.Context) error { return errors.New("of the handler") }, http.StatusOK}, // which net/http sends
		{"panic", func(*echo.Context) error { panic(http.ErrAbortHandler) }, http.StatusInternalServerError},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			asked := make(chan int, 1)
			e := unanswering(t, c.fails, guard.CountIf(func(status int) bool {
				asked <- status
				return false
			}))
			ctx, end := context.WithCancel(t.Context())
			func() {
				defer func() { _ = recover() }()
				e.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody))
			}()
			end()
			select {
			case status := <-asked:
				if status != c.status {
					t.Errorf("status %d, want %d", status, c.status)
				}
			case <-time.After(10 * time.Second):
				t.Fatal("not settled")
			}
		})
	}
}

// unanswering returns an app whose errors are not answered.
func unanswering(t *testing.T, h echo.HandlerFunc, options ...guard.Option) *echo.Echo {
	t.Helper()
	lim, err := core.NewMemory("api", core.FixedWindow(core.PerDay(10)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lim.Close() })
	e := echo.New()
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			_ = next(c)
			return nil
		}
	})
	e.Use(echolimit.Middleware(lim, keyfunc.IP(), options...))
	e.GET("/", h)
	return e
}

// TestGivenBack has the response and the context that a request came with in their place
// again when the middleware has returned: the context of one that held slots has ended.
func TestGivenBack(t *testing.T) {
	t.Parallel()
	lim, err := core.NewMemory("api", core.InFlight(1), core.FixedWindow(core.PerDay(1)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lim.Close() })
	answer := func(c *echo.Context) error { return c.NoContent(http.StatusNoContent) }
	within := func() error { return errors.New("no handler ran") }
	e := echo.New()
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			response := c.Response()
			err := next(c)
			if c.Response() != response || c.Request().Context().Err() != nil {
				t.Errorf("a %T in place of a %T, and the context has the error %v", c.Response(), response, c.Request().Context().Err())
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
		t.Errorf("the context of the handler has the error %v, want that of the slots, which are free", err)
	}
}
