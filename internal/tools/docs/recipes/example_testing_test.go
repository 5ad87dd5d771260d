package recipes_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/keyfunc"
	httplimit "github.com/redislimit/redislimit/nethttp"
)

// newService returns a service that uses the given limiter.
func newService(lim *core.Limiter) http.Handler {
	return httplimit.Middleware(lim, keyfunc.IP())(newMux())
}

// limits returns the limits of the service, which production and tests share.
func limits() core.Option {
	return core.Options(core.TokenBucket(core.PerMinute(2)), core.FailClosed())
}

// TestLimited shows how to test a limited service without Redis and without waiting.
func TestLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim, err := core.NewMemory("api", limits())
		if err != nil {
			t.Fatal(err)
		}
		handler := newService(lim)
		for i, want := range []int{200, 200, 429} {
			if got := get(handler, "/").Code; got != want {
				t.Errorf("request %d: got %d, want %d", i+1, got, want)
			}
		}
		time.Sleep(30 * time.Second) // takes no real time in a synctest bubble
		if got := get(handler, "/").Code; got != http.StatusOK {
			t.Errorf("after 30 s: got %d, want 200", got)
		}
	})
}
