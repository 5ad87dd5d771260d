package guard_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/core/guard/adapter"
	"github.com/redislimit/redislimit/internal/testkit/limits"
	"github.com/redislimit/redislimit/keyfunc"
	httplimit "github.com/redislimit/redislimit/nethttp"
)

// TestLongRequest checks a request that takes much longer than the hold. Its units must stay held, so that they are settled as
// after a short request. The window is a day, so that charges do not expire during the test.
func TestLongRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lim := core.MustNewMemory("api", core.FixedWindow(core.PerDay(10)), core.Hold(time.Second))
		defer func() { _ = lim.Close() }() // ends the background renewals
		h := httplimit.Middleware(lim, keyfunc.IP(), guard.CostAfter(), guard.Cost(func(keyfunc.Request) int64 { return 4 }))(
			http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				for range 10 {
					time.Sleep(time.Minute)
					if left := limits.Left(t, lim, "ip:192.0.2.1")[0]; left != 6 {
						t.Errorf("during the request %d units are left, want 6", left)
					}
				}
				httplimit.SetCost(r.Context(), 1)
			}))
		if w := get(h, "/"); w.Code != http.StatusOK {
			t.Fatalf("got status %d, want 200", w.Code)
		}
		if left := limits.Left(t, lim, "ip:192.0.2.1")[0]; left != 9 {
			t.Errorf("after the request %d units are left, want 9", left)
		}
	})
}

// TestWhenOver checks when the function given to WhenOver is called: a second after the end of the request if the status decides
// what is charged, because the application may still answer, and at once if there are only slots to free.
func TestWhenOver(t *testing.T) {
	t.Parallel()
	counted := guard.CountIf(func(int) bool { return true })
	for name, c := range map[string]struct {
		limit   core.Option
		options []guard.Option
		want    time.Duration
	}{
		"InFlight":  {core.InFlight(1), nil, 0},
		"CountIf":   {core.FixedWindow(core.PerDay(1)), []guard.Option{counted}, time.Second},
		"CostAfter": {core.FixedWindow(core.PerDay(1)), []guard.Option{guard.CostAfter()}, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				lim := core.MustNewMemory("api", c.limit)
				defer func() { _ = lim.Close() }()
				g, _ := adapter.Adapter[*http.Request, http.Handler]("httplimit").New(lim, keyfunc.Global(), c.options...)
				ctx, end := context.WithCancel(t.Context())
				over := make(chan time.Time, 2)
				note := func() { over <- time.Now() }
				g.WhenOver(ctx, note)
				stop := g.WhenOver(ctx, note)
				time.Sleep(time.Hour) // a request may take any time
				stop()
				ended := time.Now()
				end()
				if took := (<-over).Sub(ended); took != c.want || len(over) > 0 {
					t.Errorf("the function was called %v after the end, want %v; %d calls of the function that was stopped, want none", took, c.want, len(over))
				}
			})
		})
	}
}

// TestCountIfPanics checks that units are charged, and not held forever, if the function of CountIf panics.
func TestCountIfPanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lim := core.MustNewMemory("api", core.FixedWindow(core.PerMinute(10)), core.Hold(time.Second))
		defer func() { _ = lim.Close() }()
		h := httplimit.Middleware(lim, keyfunc.IP(), guard.CountIf(func(int) bool { panic("of the application") }))(http.HandlerFunc(hello))
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic of CountIf did not reach the caller")
				}
			}()
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
		}()
		time.Sleep(2 * time.Minute) // the window has ended, but units that are still held would have been renewed
		if res, err := lim.Peek(t.Context(), "ip:192.0.2.1"); err != nil || res.Remaining != 10 {
			t.Errorf("%d units are left, error %v; want 10 and none", res.Remaining, err)
		}
	})
}

// TestSubRequests checks a handler that serves several requests within one, as a batch API does. A cost that one of them sets
// must not apply to the next one, which sets none. The middleware around them charges the cost that was set last.
func TestSubRequests(t *testing.T) {
	t.Parallel()
	hundred := core.FixedWindow(core.PerHour(100))
	outer, inner := core.MustNewMemory("outer", hundred), core.MustNewMemory("inner", hundred)
	costs := map[string]int64{"/a": 7, "/b": 9}
	one := httplimit.Middleware(inner, keyfunc.IP(), guard.CostAfter())(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if cost, ok := costs[r.URL.Path]; ok {
			httplimit.SetCost(r.Context(), cost)
		}
	}))
	all := httplimit.Middleware(outer, keyfunc.IP(), guard.CostAfter())(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		for _, path := range []string{"/a", "/none", "/none", "/b", "/none"} {
			part := r.Clone(r.Context())
			part.URL.Path = path
			one.ServeHTTP(httptest.NewRecorder(), part)
		}
	}))
	get(all, "/")
	for lim, want := range map[*core.Limiter]int64{inner: 100 - 7 - 1 - 1 - 9 - 1, outer: 100 - 9} {
		if res, err := lim.Peek(t.Context(), "ip:192.0.2.1"); err != nil || res.Remaining != want {
			t.Errorf("%s: %d units are left, error %v; want %d", lim.Name(), res.Remaining, err, want)
		}
	}
}

// TestCountedTwice checks that a warning is logged if a request passes the same middleware twice, and none if a handler serves
// several requests within one, each of which is counted.
func TestCountedTwice(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		serve func(w http.ResponseWriter, r *http.Request, next http.Handler)
		want  int
	}{
		"mounted twice": {func(w http.ResponseWriter, r *http.Request, next http.Handler) { next.ServeHTTP(w, r) }, 1},
		"several in one": {func(_ http.ResponseWriter, r *http.Request, next http.Handler) {
			for range 3 {
				next.ServeHTTP(httptest.NewRecorder(), r.Clone(r.Context()))
			}
		}, 0},
	} {
		logger, log := logged()
		lim := core.MustNewMemory("api", core.FixedWindow(core.PerHour(100)), logger)
		limited := httplimit.Middleware(lim, keyfunc.IP())
		inner := limited(http.HandlerFunc(hello))
		h := limited(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { c.serve(w, r, inner) }))
		for range 2 {
			get(h, "/")
		}
		if n := log.Count("a request is counted twice"); n != c.want {
			t.Errorf("%s: %d warnings are logged, want %d: %s", name, n, c.want, log)
		}
	}
}

// TestSetCostLate checks that one warning is logged if SetCost is called after the response has ended, and that such a cost is
// not charged.
func TestSetCostLate(t *testing.T) {
	t.Parallel()
	logger, log := logged()
	lim := core.MustNewMemory("api", core.FixedWindow(core.PerHour(100)), logger)
	var requests []*http.Request
	h := httplimit.Middleware(lim, keyfunc.IP(), guard.CostAfter())(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		requests = append(requests, r)
		httplimit.SetCost(r.Context(), 2)
	}))
	for i := range 2 {
		get(h, "/")
		httplimit.SetCost(requests[i].Context(), 40)
	}
	if n := log.Count("SetCost was called when the response had ended"); n != 1 || log.Count("\n") != 1 {
		t.Errorf("%d warnings are logged, want 1: %s", n, log)
	}
	if res, err := lim.Peek(t.Context(), "ip:192.0.2.1"); err != nil || res.Remaining != 96 {
		t.Errorf("%d units are left, error %v; want 96", res.Remaining, err)
	}
}

// TestContextOfSlots checks that the context of a request that holds a slot is canceled at the end of
// the request.
func TestContextOfSlots(t *testing.T) {
	t.Parallel()
	lim := core.MustNewMemory("api", core.InFlight(1))
	defer func() { _ = lim.Close() }()
	within := func() error { return errors.New("no handler ran") }
	h := httplimit.Middleware(lim, keyfunc.IP())(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { within = r.Context().Err }))
	if get(h, "/"); !errors.Is(within(), context.Canceled) {
		t.Errorf("after the request, its context has the error %v, want Canceled", within())
	}
}

// TestSlotsNotTaken checks an outer middleware that serves a request without taking a slot. An inner middleware with the same limiter
// and key must decide, because its slot is not taken yet.
func TestSlotsNotTaken(t *testing.T) {
	t.Parallel()
	redisDown := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer func() { _ = redisDown.Close() }()
	lim := core.MustNewMemory("api", core.InFlight(1))
	failOpen := core.MustNew(redisDown, "api", core.InFlight(1), core.FailOpen())
	failClosed := core.MustNew(redisDown, "api", core.InFlight(1), core.FailClosed())
	for _, l := range []*core.Limiter{lim, failOpen, failClosed} {
		defer func() { _ = l.Close() }()
	}
	if p, err := lim.Acquire(t.Context(), "ip:192.0.2.1", 1); err != nil || !p.Allowed {
		t.Fatalf("got %+v, %v; want the only slot", p, err)
	}
	for name, c := range map[string]struct {
		outer, inner *core.Limiter
		option       guard.Option
		want         int
	}{
		"denied in a dry run": {lim, lim, guard.DryRun(), http.StatusTooManyRequests},
		"cost of 0":           {lim, lim, guard.Cost(func(keyfunc.Request) int64 { return 0 }), http.StatusTooManyRequests},
		"FailOpen":            {failOpen, failClosed, guard.HeadersOnDenial(), http.StatusServiceUnavailable},
	} {
		h := httplimit.Middleware(c.outer, keyfunc.IP(), c.option)(httplimit.Middleware(c.inner, keyfunc.IP())(http.HandlerFunc(hello)))
		if w := get(h, "/"); w.Code != c.want {
			t.Errorf("%s: got status %d, want %d", name, w.Code, c.want)
		}
	}
}

// TestClientLeftMeanwhile checks a client that leaves after its request was admitted: no handler runs, and units and slots that can
// be given back are neither held nor charged.
func TestClientLeftMeanwhile(t *testing.T) {
	t.Parallel()
	for name, option := range map[string]guard.Option{
		"InFlight":  guard.HeadersOnDenial(),
		"CountIf":   guard.CountIf(func(int) bool { return true }),
		"CostAfter": guard.CostAfter(),
	} {
		ctx, leave := context.WithCancel(t.Context())
		lim := core.MustNewMemory("api", core.FixedWindow(core.PerHour(10)), core.InFlight(5), core.Observe(func(_ context.Context, e core.Event) {
			if e.Kind == core.EventDecision {
				leave()
			}
		}))
		h := httplimit.Middleware(lim, keyfunc.IP(), option)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the handler ran") }))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
		if w.Code != adapter.StatusClientGone {
			t.Errorf("%s: status %d, want %d", name, w.Code, adapter.StatusClientGone)
		}
		if left := limits.Left(t, lim, "ip:192.0.2.1"); !slices.Equal(left, []int64{10, 5}) {
			t.Errorf("%s: %d units and slots are left, want 10 and 5", name, left)
		}
	}
}

// TestDelayIsObserved checks that observers receive an EventWait for a request that waits for its Delay and for one that leaves
// during its Delay, and an EventCancel for the place that is given back.
func TestDelayIsObserved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		observed := map[core.EventKind][]core.Event{}
		lim := core.MustNewMemory("queue", core.LeakyBucket(core.PerSecond(1), core.Burst(9)), core.Observe(func(_ context.Context, e core.Event) {
			observed[e.Kind] = append(observed[e.Kind], e)
		}))
		h := httplimit.Middleware(lim, keyfunc.IP())(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		for range 2 { // only the second one has a Delay
			get(h, "/")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/4)
		defer cancel()
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody))
		waits, cancels := observed[core.EventWait], observed[core.EventCancel]
		if len(waits) != 2 || len(cancels) != 1 || cancels[0].Cost != 1 {
			t.Fatalf("observed the waits %+v and the cancellations %+v, want two and one of cost 1", waits, cancels)
		}
		if e := waits[0]; e.Took != time.Second || !e.Result.Allowed || e.Err != nil || e.Limiter != "queue" {
			t.Errorf("observed %+v, want an admitted wait of 1s", e)
		}
		if e := waits[1]; e.Took != time.Second/4 || e.Result.Allowed || !errors.Is(e.Err, context.DeadlineExceeded) {
			t.Errorf("observed %+v, want a wait of 250ms that ended with DeadlineExceeded", e)
		}
	})
}

// TestCostOfZeroUnderLimitOfZero sends a request that costs nothing through two middlewares, of which the inner one has a limit of 0
// for its customer. The headers must be those of the inner limit, because it denies the next request that costs something.
func TestCostOfZeroUnderLimitOfZero(t *testing.T) {
	t.Parallel()
	for name, none := range map[string]core.Limit{"a rate": core.TokenBucket(core.PerMinute(0)), "slots": core.InFlight(0)} {
		outer, inner := core.MustNewMemory("outer", core.FixedWindow(core.PerDay(10))), core.MustNewMemory("inner", core.FixedWindow(core.PerDay(5)))
		zero, err := inner.With(none)
		if err != nil {
			t.Fatal(err)
		}
		h := httplimit.Middleware(outer, keyfunc.Global())(httplimit.Middleware(inner, keyfunc.Global(),
			guard.LimiterFor(func(keyfunc.Request) (*core.Limiter, error) { return zero, nil }),
			guard.Cost(func(r keyfunc.Request) int64 { return int64(len(r.Path()) - 1) }))(http.HandlerFunc(hello)))
		for path, status := range map[string]int{"/": http.StatusOK, "/dear": http.StatusTooManyRequests} {
			w := get(h, path)
			limit, remaining := w.Header().Get("X-RateLimit-Limit"), w.Header().Get("X-RateLimit-Remaining")
			if w.Code != status || limit != "0" || remaining != "0" || w.Header().Get("Retry-After") != "" {
				t.Errorf("%s, %s: got status %d, limit %s, remaining %s; want %d, 0 and 0, without Retry-After", name, path, w.Code, limit, remaining, status)
			}
		}
	}
}
