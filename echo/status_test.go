package echolimit_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	echolimit "github.com/redislimit/redislimit/echo"
	"github.com/redislimit/redislimit/keyfunc"
)

// TestSwallowedError has middleware further out take an error that nothing is written
// for: net/http then sends 200. The request is settled when it ends, and not held for
// ever.
func TestSwallowedError(t *testing.T) {
	t.Parallel()
	lim, err := core.NewMemory("api", core.FixedWindow(core.PerDay(10)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lim.Close() }()
	e := echo.New()
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			_ = next(c)
			return nil
		}
	})
	asked := make(chan int, 1)
	e.Use(echolimit.Middleware(lim, keyfunc.IP(), guard.CountIf(func(status int) bool {
		asked <- status
		return false
	})))
	e.GET("/", func(echo.Context) error { return errors.New("of the handler") })

	ctx, end := context.WithCancel(t.Context())
	e.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody))
	end()
	select {
	case status := <-asked:
		if status != http.StatusOK {
			t.Errorf("status %d, want 200", status)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("not settled")
	}
}
