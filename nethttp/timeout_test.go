package httplimit

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/keyfunc"
)

// TestTimeoutHandlerBetween makes http.TimeoutHandler answer while a middleware inside it still decides. The client must get the headers
// of the outer middleware, and nothing may be written to them any more, which the race detector checks.
func TestTimeoutHandlerBetween(t *testing.T) {
	limited := func(n int64, key keyfunc.Func, observer func(context.Context, core.Event), next http.Handler) http.Handler {
		lim, err := core.NewMemory("api", core.FixedWindow(core.PerHour(n)), core.Observe(observer))
		if err != nil {
			t.Fatal(err)
		}
		return Middleware(lim, key, guard.Headers(guard.XRateLimit|guard.IETF))(next)
	}
	// The inner middleware decides at once, and sets its headers after the timeout, without any
	// other synchronization.
	slow := func(context.Context, core.Event) { time.Sleep(40 * time.Millisecond) }
	done := make(chan struct{}, 1)
	inner := limited(10, keyfunc.Global(), slow, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	timeout := http.TimeoutHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		inner.ServeHTTP(w, r)
		done <- struct{}{}
	}), 10*time.Millisecond, "too late")
	outer := limited(1000, keyfunc.IP(), func(context.Context, core.Event) {}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		timeout.ServeHTTP(w, r)
		if res, ok := Result(r.Context()); !ok || res.Limit != 1000 && res.Limit != 10 {
			t.Errorf("got the Result %+v, %t; want one of the two limits", res, ok)
		}
	}))
	for range 5 {
		w := httptest.NewRecorder()
		outer.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
		if w.Code == http.StatusOK { // the machine was too busy for the timeout
			<-done
			continue
		}
		for range 100 { // while the inner middleware sets its headers
			if limit := w.Header().Get("X-RateLimit-Limit"); w.Code != http.StatusServiceUnavailable || limit != "1000" {
				t.Fatalf("got status %d and limit %q, want 503 and the outer limit 1000", w.Code, limit)
			}
			time.Sleep(500 * time.Microsecond)
		}
		<-done
	}
}
