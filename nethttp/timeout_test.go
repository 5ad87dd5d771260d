package httplimit

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/keyfunc"
)

// TestTimeoutHandlerBetween has http.TimeoutHandler answer while a middleware inside
// of it still decides. What the outer one has set is the client's, and nothing is
// written to it any more: the race detector looks for that.
func TestTimeoutHandlerBetween(t *testing.T) {
	limited := func(n int64, key keyfunc.Func, observer func(context.Context, core.Event), next http.Handler) http.Handler {
		lim, err := core.NewMemory("api", core.FixedWindow(core.PerHour(n)), core.Observe(observer))
		if err != nil {
			t.Fatal(err)
		}
		return Middleware(lim, key, guard.Headers(guard.XRateLimit|guard.IETF))(next)
	}
	// The inner one decides at once, and sets its headers after the timeout, with no
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
			t.Errorf("the result is %+v, %t", res, ok)
		}
	}))
	for range 5 {
		w := httptest.NewRecorder()
		outer.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
		if w.Code == http.StatusOK { // the machine was too busy for the timeout
			<-done
			continue
		}
		for range 100 { // while the inner one sets its headers
			if limit := w.Header().Get("X-RateLimit-Limit"); w.Code != http.StatusServiceUnavailable || limit != "1000" {
				t.Fatalf("status %d, limit %q; want 503 and the outer limit", w.Code, limit)
			}
			time.Sleep(500 * time.Microsecond)
		}
		<-done
	}
}

// TestTimeoutHandlerCost has a handler set its cost when http.TimeoutHandler has answered
// for it. The middleware outside has then charged what was set before, and the one inside
// charges the cost when the handler ends.
func TestTimeoutHandlerCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		costAfter := func(next http.Handler) (http.Handler, *core.Limiter) {
			lim, err := core.NewMemory("api", core.FixedWindow(core.PerDay(10)))
			if err != nil {
				t.Fatal(err)
			}
			return Middleware(lim, keyfunc.IP(), guard.CostAfter(), guard.Cost(func(keyfunc.Request) int64 { return 2 }))(next), lim
		}
		inside, inner := costAfter(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			SetCost(r.Context(), 3)
			time.Sleep(2 * time.Minute)
			SetCost(r.Context(), 7)
		}))
		outside, outer := costAfter(http.TimeoutHandler(inside, time.Minute, "too late"))
		wantLeft := func(lim *core.Limiter, want int64) {
			t.Helper()
			if res, err := lim.Peek(t.Context(), "ip:192.0.2.1"); err != nil || res.Remaining != want {
				t.Errorf("%d units are left, %v; want %d", res.Remaining, err, want)
			}
		}
		w := httptest.NewRecorder()
		outside.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
		if w.Code != http.StatusServiceUnavailable {
			t.Fatal(w.Code)
		}
		wantLeft(outer, 7) // what was set until then
		wantLeft(inner, 8)
		time.Sleep(2 * time.Minute)
		wantLeft(outer, 7)
		wantLeft(inner, 3)
	})
}

// TestTimeoutHandlerSlots has http.TimeoutHandler answer while the handler goes on. Outside
// of it the slot is free then; inside of it when the handler ends. The context of what
// is further out goes on.
func TestTimeoutHandlerSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inFlight := func(next http.Handler) (http.Handler, *core.Limiter) {
			lim, err := core.NewMemory("api", core.InFlight(1))
			if err != nil {
				t.Fatal(err)
			}
			return Middleware(lim, keyfunc.IP())(next), lim
		}
		inside, inner := inFlight(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			time.Sleep(2 * time.Minute)
			if r.Context().Err() == nil || errors.Is(context.Cause(r.Context()), core.ErrSlotLost) {
				t.Errorf("the handler's context: %v", context.Cause(r.Context()))
			}
		}))
		outside, outer := inFlight(http.TimeoutHandler(inside, time.Minute, "too late"))
		wantLeft := func(when string, lim *core.Limiter, want int64) {
			t.Helper()
			if res, err := lim.Peek(t.Context(), "ip:192.0.2.1"); err != nil || res.Remaining != want {
				t.Errorf("%s: %d slots are left, %v; want %d", when, res.Remaining, err, want)
			}
		}
		w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		go func() {
			time.Sleep(30 * time.Second)
			wantLeft("while it works", outer, 0)
			wantLeft("while it works", inner, 0)
		}()
		outside.ServeHTTP(w, r)
		if w.Code != http.StatusServiceUnavailable || r.Context().Err() != nil {
			t.Errorf("status %d, %v", w.Code, r.Context().Err())
		}
		wantLeft("after the timeout", outer, 1)
		wantLeft("after the timeout", inner, 0)
		time.Sleep(2 * time.Minute)
		wantLeft("when the handler has returned", inner, 1)
	})
}
