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
)

// A service whose requests http.TimeoutHandler gives less time than Redis has: while that is stopped only those of its first Timeout
// are refused. After that clients get what the outage policy decides.
func TestTimeoutHandlerInOutage(t *testing.T) {
	t.Parallel()
	check.Rounds(t, timeouts, func(t *check.Round, bound time.Duration) {
		const clients, waves = 8, 2 // of requests in one Timeout
		lasts := 4*waves*bound + time.Second
		e := newEnv(t, setup{})
		l, watch := watched(e.rdb, "handler", core.FailOpen(), core.FixedWindow(core.PerHour(1e6)), core.Timeout(waves*bound))
		awaitRedis(t, l, "k")
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := l.Allow(r.Context(), "k"); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
			}
		})
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
					response, err := service.Client().Get(service.URL)
					if err != nil {
						t.Error(err)
						return
					}
					_ = response.Body.Close()
					switch {
					case known && (time.Since(begun) > bound/2 || response.StatusCode != http.StatusOK):
						slow.Add(1)
					case response.StatusCode == http.StatusServiceUnavailable:
						wave.Add(1)
					}
				}
			})
		}
		running.Wait()
		e.server.Resume()
		awaitRedis(t, l, "k")
		watch.wantOutages(t, 1)
		if n := wave.Load(); slow.Load() > 0 || n < clients || n > clients*(waves+1+whileProbed) { // some more in a busy process
			t.Errorf("%d requests were refused before it was known that Redis is away, and %d were slow or refused after it", n, slow.Load())
		}
	})
}
