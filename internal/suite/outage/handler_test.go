package outage

import (
	"fmt"
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

// A service whose requests are bounded by http.TimeoutHandler, with a limiter of the default Timeout: while Redis is stopped its
// clients get what the outage policy decides, and in time. Only a first wave waits for Redis.
func TestTimeoutHandlerInOutage(t *testing.T) {
	t.Parallel()
	var running sync.WaitGroup
	for _, m := range []mode{{"FailOpen", []core.Option{core.FailOpen()}, 0}, {"FailLocal", []core.Option{core.FailLocal()}, 1}} {
		for _, clients := range []int{1, 4, 8} {
			running.Go(func() { // not t.Parallel: they mostly wait
				t.Run(fmt.Sprint(m.name, ", clients: ", clients), func(t *testing.T) {
					check.Rounds(t, timeouts[1:], func(t *check.Round, bound time.Duration) { timeoutHandler(t, m, clients, bound) })
				})
			})
		}
	}
	running.Wait()
}

func timeoutHandler(t *check.Round, m mode, clients int, bound time.Duration) {
	const lasts = 2 * time.Second
	e := newEnv(t, setup{})
	l, watch := watched(e.rdb, "handler", append(m.options, core.FixedWindow(core.PerHour(1e6)))...)
	awaitRedis(t, l, "k")
	handler := httplimit.Middleware(l, keyfunc.Global())(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	service := httptest.NewServer(http.TimeoutHandler(handler, bound, "too late"))
	t.Cleanup(service.Close)
	e.server.Pause()
	defer e.server.Resume()
	var answers, wave, slow, refused atomic.Int64
	var running sync.WaitGroup
	for range clients {
		running.Go(func() {
			for start := time.Now(); time.Since(start) < lasts; time.Sleep(20 * time.Millisecond) {
				known, begun := watch.count(core.EventFallbackOn) > 0, time.Now()
				request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, service.URL, nil)
				if err != nil {
					t.Error(err)
					return
				}
				response, err := service.Client().Do(request)
				if err != nil {
					t.Error(err)
					return
				}
				_ = response.Body.Close()
				answers.Add(1)
				switch {
				case time.Since(begun) < bound/2:
				case known:
					slow.Add(1)
				default:
					wave.Add(1)
				}
				if response.StatusCode != http.StatusOK {
					refused.Add(1)
				}
			}
		})
	}
	running.Wait()
	e.server.Resume()
	awaitRedis(t, l, "k")
	watch.wantOutages(t, 1)
	t.Logf("%s, %d clients: %d answers, %d of them slow before the outage was known, %d after; %d not 200; %d failed calls",
		m.name, clients, answers.Load(), wave.Load(), slow.Load(), refused.Load(), watch.count(core.EventOutage))
	if refused.Load() > 0 {
		t.Errorf("%d of %d answers were not 200", refused.Load(), answers.Load())
	}
	if slow.Load() > 0 || wave.Load() > int64(clients*(1+whileProbed)) { // one wave, or some in a busy process
		t.Errorf("%d and %d answers to %d clients were slow, want no more than a first wave", wave.Load(), slow.Load(), clients)
	}
}
