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

// newServer is the service that is tested: it takes its limiter from outside.
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

// The service is to count by the client's address, and what it sends.
func ExampleCalls() {
	lim := limittest.Allow()
	r := httptest.NewRequest(http.MethodGet, "/", nil) // from 192.0.2.1
	r.Header.Set("X-Data", "some")
	newServer(lim).ServeHTTP(httptest.NewRecorder(), r)

	fmt.Printf("%+v\n", limittest.Calls(lim))
	// Output: [{Method:AllowN Key:ip:192.0.2.1 Cost:4}]
}
