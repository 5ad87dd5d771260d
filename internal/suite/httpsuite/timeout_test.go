package httpsuite_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/core/guard/adapter"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/faultproxy"
	"github.com/redislimit/redislimit/internal/testkit/gate"
	"github.com/redislimit/redislimit/internal/testkit/limits"
	"github.com/redislimit/redislimit/internal/testkit/redisclient"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
	"github.com/redislimit/redislimit/keyfunc"
	httplimit "github.com/redislimit/redislimit/nethttp"
)

// TestDeadlineOfServer makes Redis stop answering while the server gives requests less time than the Timeout. Requests that
// wait meanwhile get 503, and afterwards the outage policy decides on requests at once.
func TestDeadlineOfServer(t *testing.T) {
	t.Parallel()
	const wave = 10
	timeoutHandler := func(next http.Handler, deadline time.Duration) http.Handler {
		return http.TimeoutHandler(next, deadline, "too late")
	}
	ofContext := func(next http.Handler, deadline time.Duration) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithTimeout(r.Context(), deadline)
			defer cancel()
			next.ServeHTTP(w, r.WithContext(ctx))
		})
	}
	for _, c := range []struct {
		name   string
		within func(next http.Handler, deadline time.Duration) http.Handler
		limits []core.Option
		then   map[int]int // how many of the second wave have each status
	}{
		{"TimeoutHandler/FailOpen", timeoutHandler, []core.Option{core.FixedWindow(core.PerDay(3)), core.FailOpen()}, map[int]int{200: wave}},
		{"TimeoutHandler/FailLocal", timeoutHandler, []core.Option{core.FixedWindow(core.PerDay(3))}, map[int]int{200: 3, 429: wave - 3}},
		{"Context/FailLocal", ofContext, []core.Option{core.FixedWindow(core.PerDay(3))}, map[int]int{200: 3, 429: wave - 3}},
		{"Context/InFlight", ofContext, []core.Option{core.InFlight(100)}, map[int]int{200: wave}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			check.Rounds(t, []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second}, func(r *check.Round, timeout time.Duration) {
				deadline := timeout * 3 / 5
				proxy := faultproxy.New(r, redistest.Server(r).Addr)
				client := redisclient.New(r, &redis.Options{Addr: proxy.Addr()})
				open := make(chan struct{}, 1)
				lim := core.MustNew(client, "api", append(c.limits, core.Timeout(timeout), core.Observe(func(_ context.Context, e core.Event) {
					if e.Kind == core.EventBreaker && e.Detail == "open" {
						open <- struct{}{}
					}
				}))...)
				r.Cleanup(func() { _ = lim.Close() })
				h := c.within(httplimit.Middleware(lim, keyfunc.Global())(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})), deadline)
				if _, err := lim.Peek(r.Context(), "other"); err != nil { // the first connection of a process has a longer timeout
					r.Fatal(err)
				}
				proxy.Silence()
				if got := sendWave(r, h, wave); got[http.StatusServiceUnavailable] != wave {
					r.Errorf("the statuses of the first wave are %v, want 503 %d times", got, wave)
				}
				check.Receive(r, "the breaker opens", open) // after the Timeout, or 3 s later if the process is busy
				began := time.Now()
				got := sendWave(r, h, wave)
				if took := time.Since(began); took > deadline {
					r.Errorf("the second wave took %v, want less than the deadline", took)
				}
				for status, n := range c.then {
					if got[status] != n {
						r.Errorf("the statuses of the second wave are %v, want %v", got, c.then)
					}
				}
			})
		})
	}
}

// sendWave sends n requests at the same time, and returns how many responses have each status.
func sendWave(r *check.Round, h http.Handler, n int) map[int]int {
	var mu sync.Mutex
	statuses := make(map[int]int)
	check.Together(n, func(int) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(r.Context(), http.MethodGet, "/", nil))
		mu.Lock()
		defer mu.Unlock()
		statuses[w.Code]++
		if retry := w.Header().Get("Retry-After"); w.Code == http.StatusServiceUnavailable && retry != "1" && retry != "" {
			r.Errorf("Retry-After is %q, want 1 or none", retry)
		}
	})
	return statuses
}

// TestGoneWhileAdmitted makes a client leave after it has waited, while Redis admits it: its charge is taken back.
func TestGoneWhileAdmitted(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	process := func(hooks ...redis.Hook) *core.Limiter {
		client := server.Client(t)
		for _, hook := range hooks {
			client.AddHook(hook)
		}
		lim := core.MustNew(client, "api", core.InFlight(1, core.SlotTTL(time.Hour)), core.FixedWindow(core.PerDay(10)), core.Timeout(time.Minute))
		t.Cleanup(func() { _ = lim.Close() })
		return lim
	}
	var g gate.Gate
	mine, others := process(&g), process()
	slot, err := others.Acquire(t.Context(), keyfunc.ForGlobal(), 1)
	if err != nil || !slot.Allowed {
		t.Fatalf("Acquire: got %+v, %v; want it admitted", slot, err)
	}
	h := httplimit.Middleware(mine, keyfunc.Global(), guard.WaitUpTo(time.Minute))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	status := make(chan int, 1)
	go func() {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
		status <- w.Code
	}()
	time.Sleep(200 * time.Millisecond) // by now the request waits, and tries again and again
	g.HoldReplies(t)
	g.Await(t, 1) // a denial
	if err := slot.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	g.Release(t, 1)
	g.Await(t, 1) // an admission
	leave()
	time.Sleep(10 * time.Millisecond)
	g.Open()
	if got := check.Receive(t, "the request has ended", status); got != adapter.StatusClientGone {
		t.Errorf("got status %d, want %d", got, adapter.StatusClientGone)
	}
	check.Eventually(t, "only the first request is charged", func() bool {
		return slices.Equal(limits.Left(t, others, keyfunc.ForGlobal()), []int64{1, 9})
	})
}

// TestWaitUpToIsNoTimeout makes Redis take longer for each reply than requests may wait: this is not an outage, and the
// outage policy makes no decision.
func TestWaitUpToIsNoTimeout(t *testing.T) {
	t.Parallel()
	const slots, requests = 2, 20
	for name, policy := range map[string]core.Option{"FailOpen": core.FailOpen(), "FailLocal": core.FailLocal(), "FailClosed": core.FailClosed()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := faultproxy.New(t, redistest.Server(t).Addr)
			client := redisclient.New(t, &redis.Options{Addr: proxy.Addr(), ContextTimeoutEnabled: true})
			var failed atomic.Int64
			lim := core.MustNew(client, "api", core.InFlight(slots), policy, core.Timeout(time.Minute), core.Observe(func(_ context.Context, e core.Event) {
				if e.Kind == core.EventOutage || e.Kind == core.EventDecision && e.Result.Source != core.SourceRedis {
					failed.Add(1)
				}
			}))
			t.Cleanup(func() { _ = lim.Close() })
			proxy.Latency(50 * time.Millisecond)
			var running, most atomic.Int64
			h := httplimit.Middleware(lim, keyfunc.Global(), guard.WaitUpTo(20*time.Millisecond))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				if n := running.Add(1); n > slots {
					most.Store(n)
				}
				time.Sleep(10 * time.Millisecond)
				running.Add(-1)
			}))
			var all sync.WaitGroup
			var served atomic.Int64
			for range requests {
				all.Go(func() {
					w := httptest.NewRecorder()
					h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
					if w.Code == http.StatusOK {
						served.Add(1)
					} else if w.Code != http.StatusTooManyRequests {
						t.Errorf("got status %d, want 200 or 429", w.Code)
					}
				})
			}
			all.Wait()
			if served.Load() < slots || most.Load() > 0 || failed.Load() > 0 {
				t.Errorf("%d requests were served, up to %d at a time (0: never more than the slots), and %d decisions were not made by Redis; want some served, 0 and 0", served.Load(), most.Load(), failed.Load())
			}
			if res, err := lim.Peek(t.Context(), keyfunc.ForGlobal()); err != nil || res.Remaining != slots {
				t.Errorf("%d slots are free, %v; want all", res.Remaining, err)
			}
		})
	}
}

// TestTimeoutHandler makes http.TimeoutHandler answer for a handler that continues. A limit outside of it then frees its
// slot, and charges the cost that was set until then. A limit inside of it holds the slot until the handler ends, and
// charges the handler's last cost.
func TestTimeoutHandler(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limited := func(next http.Handler) (http.Handler, *core.Limiter) {
			lim := core.MustNewMemory("api", core.InFlight(1, core.SlotTTL(time.Hour)), core.FixedWindow(core.PerDay(100)))
			t.Cleanup(func() { _ = lim.Close() })
			return httplimit.Middleware(lim, keyfunc.Global(), guard.CostAfter())(next), lim
		}
		wantLeft := func(when string, lim *core.Limiter, slots, units int64) {
			t.Helper()
			if got := limits.Left(t, lim, keyfunc.ForGlobal()); !slices.Equal(got, []int64{slots, units}) {
				t.Errorf("%s the slots and units that remain are %d, want %d and %d", when, got, slots, units)
			}
		}
		var inner, outer *core.Limiter
		var inside, outside http.Handler
		inside, inner = limited(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			wantLeft("while it works", outer, 0, 99)
			httplimit.SetCost(r.Context(), 3)
			time.Sleep(2 * time.Minute)
			httplimit.SetCost(r.Context(), 7)
			if r.Context().Err() == nil || errors.Is(context.Cause(r.Context()), core.ErrSlotLost) {
				t.Errorf("the handler's context has the cause %v, want one because of the timeout", context.Cause(r.Context()))
			}
		}))
		outside, outer = limited(http.TimeoutHandler(inside, time.Minute, "too late"))
		send := func(want int) {
			t.Helper()
			w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			outside.ServeHTTP(w, r)
			if w.Code != want || r.Context().Err() != nil {
				t.Errorf("got status %d, want %d; the error of the request's context is %v, want nil", w.Code, want, r.Context().Err())
			}
		}
		send(http.StatusServiceUnavailable)
		wantLeft("outside, after the timeout,", outer, 1, 97)
		wantLeft("inside", inner, 0, 99)
		send(http.StatusTooManyRequests) // denied by the inner limit: the handler still works
		time.Sleep(2 * time.Minute)
		wantLeft("outside, at the end,", outer, 1, 96)
		wantLeft("inside", inner, 1, 93)
	})
}
