package limittest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/keyfunc"
	"github.com/redislimit/redislimit/limittest"
	httplimit "github.com/redislimit/redislimit/nethttp"
)

// newServer returns the service that is tested. Its limiter is an argument, so that a test can pass another one.
func newServer(lim *core.Limiter) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "hello") })
	busy := httplimit.OnDenied(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		res, _ := httplimit.Result(r.Context())
		_, _ = fmt.Fprintf(w, "come back in %v", res.RetryAfter)
	}))
	byteCost := guard.Cost(func(r keyfunc.Request) int64 { return int64(len(r.Header("X-Data"))) })
	return httplimit.Middleware(lim, keyfunc.IP(), busy, byteCost)(mux)
}

func ExampleDeny() {
	handler := newServer(limittest.Deny(30 * time.Second))

	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("X-Data", "some")
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	fmt.Println(w.Code, w.Header().Get("Retry-After"), w.Body)
	// Output: 429 30 come back in 30s
}

// The service must answer with 503 while its limiter cannot decide.
func ExampleUnavailable() {
	handler := newServer(limittest.Unavailable())

	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	fmt.Println(w.Code, w.Header().Get("Retry-After"))
	// Output: 503 1
}

// The service must count by the client's address, and charge the number of bytes that the client sends.
func ExampleCalls() {
	lim := limittest.Allow()
	r := httptest.NewRequest(http.MethodGet, "/", nil) // from 192.0.2.1
	r.Header.Set("X-Data", "some")
	newServer(lim).ServeHTTP(httptest.NewRecorder(), r)

	fmt.Printf("%+v\n", limittest.Calls(lim))
	// Output: [{Method:AllowN Key:ip:192.0.2.1 Cost:4}]
}

// One client sends almost two requests per second, and another one sends two per minute. Which of two limits suits both?
func ExampleReplay() {
	began := time.Date(2025, 12, 31, 23, 0, 0, 0, time.UTC)
	arrivals := func(yield func(limittest.Arrival) bool) {
		for i := range 600 {
			key := "heavy"
			if i%60 == 0 {
				key = "light"
			}
			if !yield(limittest.Arrival{Time: began.Add(time.Duration(i) * 500 * time.Millisecond), Key: key, Cost: 1}) {
				return
			}
		}
	}
	reports, err := limittest.Replay(arrivals, core.TokenBucket(core.PerMinute(60)), core.TokenBucket(core.PerMinute(150)))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, r := range reports {
		fmt.Println(r.Limits, "denies", r.Denied, "of", r.Arrivals)
		for _, k := range r.Keys {
			fmt.Printf("  %s: %d of %d, and uses %.0f %%\n", k.Key, k.Denied, k.Arrivals, 100*k.Peak)
		}
	}
	// Output:
	// [token_bucket 60/1m] denies 231 of 600
	//   heavy: 231 of 590, and uses 100 %
	//   light: 0 of 10, and uses 2 %
	// [token_bucket 150/1m] denies 0 of 600
	//   heavy: 0 of 590, and uses 1 %
	//   light: 0 of 10, and uses 1 %
}
