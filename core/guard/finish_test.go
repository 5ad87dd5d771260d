package guard_test

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
	"github.com/redislimit/redislimit/core/guard/adapter"
	"github.com/redislimit/redislimit/keyfunc"
	httplimit "github.com/redislimit/redislimit/nethttp"
)

// TestLongRequest has a request run for much longer than the hold. What is held stays
// held, so that it is settled as if the request had been short. The window is a day's:
// what is charged to it does not drain meanwhile.
func TestLongRequest(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		option guard.Option
		left   int64
	}{
		{"does not count", guard.CountIf(func(status int) bool { return status != http.StatusOK }), 10},
		{"counts", guard.CountIf(func(status int) bool { return status == http.StatusOK }), 6},
		{"costs less", guard.CostAfter(), 9},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				lim, err := core.NewMemory("api", core.FixedWindow(core.PerDay(10)), core.Hold(time.Second))
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = lim.Close() }() // it ends what runs in the background
				wantLeft := func(when string, want int64) {
					t.Helper()
					if res, err := lim.Peek(t.Context(), "ip:192.0.2.1"); err != nil || res.Remaining != want {
						t.Errorf("%s %d units are left, %v; want %d", when, res.Remaining, err, want)
					}
				}
				h := httplimit.Middleware(lim, keyfunc.IP(), c.option, guard.Cost(func(keyfunc.Request) int64 { return 4 }))(
					http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
						for range 10 {
							time.Sleep(time.Minute)
							wantLeft("meanwhile", 6)
						}
						httplimit.SetCost(r.Context(), 1)
					}))
				if w := get(h, "/"); w.Code != http.StatusOK {
					t.Fatal(w.Code)
				}
				wantLeft("then", c.left)
			})
		})
	}
}

// TestCountIfPanics has the user's own function panic: what was held is charged, and not
// held for ever.
func TestCountIfPanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lim, err := core.NewMemory("api", core.FixedWindow(core.PerMinute(10)), core.Hold(time.Second))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = lim.Close() }()
		h := httplimit.Middleware(lim, keyfunc.IP(), guard.CountIf(func(int) bool { panic("of the application") }))(http.HandlerFunc(hello))
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
		}()
		time.Sleep(2 * time.Minute) // the window has ended, and a hold would be renewed
		if res, err := lim.Peek(t.Context(), "ip:192.0.2.1"); err != nil || res.Remaining != 10 {
			t.Errorf("%d units are left, %v; want 10", res.Remaining, err)
		}
	})
}

// TestContextOfSlots has the context of a request that holds a slot end with it.
func TestContextOfSlots(t *testing.T) {
	t.Parallel()
	lim, err := core.NewMemory("api", core.InFlight(1))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lim.Close() }()
	within := func() error { return errors.New("no handler ran") }
	h := httplimit.Middleware(lim, keyfunc.IP())(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { within = r.Context().Err }))
	if get(h, "/"); !errors.Is(within(), context.Canceled) {
		t.Errorf("the context has the error %v", within())
	}
}

// TestClientLeft has the client leave before the decision, which is no outage.
func TestClientLeft(t *testing.T) {
	t.Parallel()
	ctx, leave := context.WithCancel(t.Context())
	leave()
	w := httptest.NewRecorder()
	limited(hello).ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
	if w.Code != adapter.StatusClientGone {
		t.Errorf("status %d, want %d", w.Code, adapter.StatusClientGone)
	}
}
