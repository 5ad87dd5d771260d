package httpsuite

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/keyfunc"
)

// IPAllocates checks that the key of a direct peer takes at most this number of allocations. r is the request that the
// adapter's Request returns.
func IPAllocates(t *testing.T, r keyfunc.Request, most float64) {
	t.Helper()
	key := keyfunc.IP()
	if n := testing.AllocsPerRun(100, func() { _, _ = key(r) }); n > most {
		t.Errorf("the key takes %v allocations, want at most %v", n, most)
	}
}

// Unanswered makes outer middleware swallow an error of the handler, or net/http recover a panic, for which nothing is
// written. Such requests must be settled, and must not hold their units forever. app returns an app with a middleware
// around the limit that swallows all errors.
func Unanswered(t *testing.T, app func(limit Limit, fails func() error) http.Handler) {
	t.Helper()
	for _, c := range []struct {
		name   string
		fails  func() error
		status int
	}{
		{"error", func() error { return errors.New("of the handler") }, http.StatusOK}, // net/http sends this status
		{"panic", func() error { panic(http.ErrAbortHandler) }, http.StatusInternalServerError},
	} {
		t.Run(c.name, func(t *testing.T) {
			lim, err := core.NewMemory("api", core.FixedWindow(core.PerDay(10)))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = lim.Close() })
			counted := make(chan int, 1)
			h := app(Limit{Limiter: lim, Key: keyfunc.IP(), Options: []guard.Option{guard.CountIf(func(status int) bool {
				counted <- status
				return false
			})}}, c.fails)
			ctx, end := context.WithCancel(t.Context())
			func() {
				defer func() { _ = recover() }()
				h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody))
			}()
			end()
			select {
			case status := <-counted:
				if status != c.status {
					t.Errorf("CountIf was called with status %d, want %d", status, c.status)
				}
			case <-time.After(10 * time.Second):
				t.Fatal("CountIf was not called within 10s, want the request settled")
			}
		})
	}
}
