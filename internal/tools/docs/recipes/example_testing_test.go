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

// newService is a service that takes its limiter from outside.
func newService(lim *core.Limiter) http.Handler {
	return httplimit.Middleware(lim, keyfunc.IP())(newMux())
}

// limits are those of the service, in production and in tests.
func limits() core.Option {
	return core.Options(core.TokenBucket(core.PerMinute(2)), core.FailClosed())
}

func TestLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim, err := core.NewMemory("api", limits())
		if err != nil {
			t.Fatal(err)
		}
		handler := newService(lim)
		for i, want := range []int{200, 200, 429} {
			if got := get(handler, "/").Code; got != want {
				t.Errorf("request %d: %d, want %d", i+1, got, want)
			}
		}
		time.Sleep(30 * time.Second) // takes no time, in a bubble of synctest
		if got := get(handler, "/").Code; got != http.StatusOK {
			t.Errorf("after 30 s: %d", got)
		}
	})
}
