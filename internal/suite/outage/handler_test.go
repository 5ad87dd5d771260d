package outage

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/keyfunc"
	httplimit "github.com/redislimit/redislimit/nethttp"
)

// A service whose requests are bounded by http.TimeoutHandler, with a limiter of the default Timeout: while Redis is stopped only
// a first wave waits for it, or is refused. After that its clients get what the outage policy decides.
func TestTimeoutHandlerInOutage(t *testing.T) {
	t.Parallel()
	check.Rounds(t, timeouts[1:], func(t *check.Round, bound time.Duration) {
		const lasts, clients = 2 * time.Second, 8
		e := newEnv(t, setup{})
		l, watch := watched(e.rdb, "handler", core.FailOpen(), core.FixedWindow(core.PerHour(1e6)))
		awaitRedis(t, l, "k")
		handler := httplimit.Middleware(l, keyfunc.Global())(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		service := httptest.NewServer(http.TimeoutHandler(handler, bound, "too late"))
		t.Cleanup(service.Close)
		e.server.Pause()
		defer e.server.Resume()
		var wave, slow atomic.Int64
		var running sync.WaitGroup
		for range clients {
			running.Go(func() {
				for start := time.Now(); time.Since(start) < lasts; time.Sleep(20 * time.Millisecond) {
					known, begun := watch.count(core.EventFallbackOn) > 0, time.Now()
					response, err := service.Client().Get(service.URL) //nolint:noctx // its end is what is tested
					if err != nil {
						t.Error(err)
						return
					}
					_ = response.Body.Close()
					switch {
					case time.Since(begun) < bound/2 && response.StatusCode == http.StatusOK:
					case known:
						slow.Add(1)
					default:
						wave.Add(1)
					}
				}
			})
		}
		running.Wait()
		e.server.Resume()
		awaitRedis(t, l, "k")
		watch.wantOutages(t, 1)
		if slow.Load() > 0 || wave.Load() > clients*(1+whileProbed) { // one wave, or some in a busy process
			t.Errorf("%d and %d answers were slow or not 200, want no more than a first wave", wave.Load(), slow.Load())
		}
	})
}
