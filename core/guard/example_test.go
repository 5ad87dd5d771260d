package guard_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/keyfunc"
	httplimit "github.com/redislimit/redislimit/nethttp"
)

// limited returns a handler with a middleware that admits two requests per hour from each client.
// The options of the middleware are the same in every adapter.
func limited(next http.HandlerFunc, options ...guard.Option) http.Handler {
	lim, _ := core.NewMemory("api", core.FixedWindow(core.PerHour(2)))
	return httplimit.Middleware(lim, keyfunc.IP(), options...)(next)
}

// get sends a request for path to h.
func get(h http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

func hello(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "hello") }

// Health checks are not counted.
func ExampleSkip() {
	h := limited(hello, guard.Skip(func(r keyfunc.Request) bool { return r.Path() == "/healthz" }))

	for _, path := range []string{"/healthz", "/", "/healthz", "/", "/healthz", "/"} {
		fmt.Println(path, get(h, path).Code)
	}
	// Output:
	// /healthz 200
	// / 200
	// /healthz 200
	// / 200
	// /healthz 200
	// / 429
}

// An export costs as much as two requests.
func ExampleCost() {
	h := limited(hello, guard.Cost(func(r keyfunc.Request) int64 {
		if r.Path() == "/export" {
			return 2
		}
		return 1
	}))

	fmt.Println(get(h, "/export").Code, get(h, "/").Code)
	// Output: 200 429
}

// A request waits for up to a second if it can be admitted then.
func ExampleWaitUpTo() {
	lim, _ := core.NewMemory("api", core.TokenBucket(core.PerSecond(20), core.Burst(1)))
	h := httplimit.Middleware(lim, keyfunc.IP(), guard.WaitUpTo(time.Second))(http.HandlerFunc(hello))

	fmt.Println(get(h, "/").Code, get(h, "/").Code, get(h, "/").Code)
	// Output: 200 200 200
}

// Customers of the paid tier have a limiter of their own.
func ExampleLimiterFor() {
	paid, _ := core.NewMemory("paid", core.FixedWindow(core.PerHour(1000)))
	h := limited(hello, guard.LimiterFor(func(r keyfunc.Request) (*core.Limiter, error) {
		if r.Header("X-Tier") == "paid" { // set by your own gateway
			return paid, nil
		}
		return nil, nil //nolint:nilnil // the mounted one
	}))

	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("X-Tier", "paid")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	fmt.Println(w.Header().Get("X-RateLimit-Limit"), get(h, "/").Header().Get("X-RateLimit-Limit"))
	// Output: 1000 2
}

// Only logins that do not succeed count. A client with the right password is not limited, unless too many logins
// have failed from the same address.
func ExampleCountIf() {
	h := limited(func(w http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); password != "right" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}, guard.CountIf(func(status int) bool { return status != http.StatusOK }))

	for _, password := range []string{"right", "right", "right", "guess", "guess", "guess", "right"} {
		r := httptest.NewRequest(http.MethodPost, "/login", nil)
		r.SetBasicAuth("alice", password)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		fmt.Println(password, w.Code)
	}
	// Output:
	// right 200
	// right 200
	// right 200
	// guess 401
	// guess 401
	// guess 429
	// right 429
}

// A gateway to a language model limits tokens. The number of tokens of an answer is known only when
// the answer is complete: the gateway reserves 500 tokens for each request, and charges the actual
// number.
func ExampleCostAfter() {
	lim, _ := core.NewMemory("tokens", core.FixedWindow(core.PerHour(10_000)))
	gateway := httplimit.Middleware(lim, keyfunc.APIKey("X-API-Key"),
		guard.CostAfter(),
		guard.Cost(func(keyfunc.Request) int64 { return 500 }))
	h := gateway(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintln(w, "a long answer")
		httplimit.SetCost(r.Context(), 7312)
	}))

	for range 3 {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set("X-API-Key", "4f1b7b0c")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Header().Get("X-RateLimit-Remaining"))
	}
	// Output:
	// 200 9500
	// 200 2188
	// 429 0
}

// The limits of a user and of the user's organization decide together: a user who is over their own
// limit uses up nothing of the limit that they share.
func ExampleAlsoLimit() {
	perUser := core.MustNewMemory("user", core.FixedWindow(core.PerHour(2)))
	perOrg := core.MustNewMemory("org", core.FixedWindow(core.PerHour(1000)))
	everybody := core.MustNewMemory("everybody", core.FixedWindow(core.PerHour(9000)))
	type userKey struct{} // where authentication stores the user
	org := func(keyfunc.Request) (string, error) { return "org:acme", nil }

	limited := httplimit.Middleware(perUser, keyfunc.User(userKey{}),
		guard.AlsoLimit(perOrg, org), guard.AlsoLimit(everybody, keyfunc.Global()))
	h := limited(http.HandlerFunc(hello))

	for range 10 {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		h.ServeHTTP(httptest.NewRecorder(), r.WithContext(context.WithValue(r.Context(), userKey{}, "alice")))
	}
	res, _ := perOrg.Peek(context.Background(), "org:acme")
	fmt.Println(res.Remaining)
	// Output: 998
}

// Behind a proxy, requests without a user are counted by the client's address. Without the option
// TrustedProxies, they would all be counted by the address of the proxy.
func ExampleFallback() {
	lim, _ := core.NewMemory("api", core.FixedWindow(core.PerHour(1)))
	trusted := keyfunc.TrustedProxies("192.0.2.1")
	h := httplimit.Middleware(lim, keyfunc.APIKey("X-API-Key"), guard.Fallback(keyfunc.IP(trusted)))(http.HandlerFunc(hello))

	for _, client := range []string{"203.0.113.7", "203.0.113.7", "203.0.113.8"} {
		r := httptest.NewRequest(http.MethodGet, "/", nil) // from 192.0.2.1
		r.Header.Set("X-Forwarded-For", client)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		fmt.Println(client, w.Code)
	}
	// Output:
	// 203.0.113.7 200
	// 203.0.113.7 429
	// 203.0.113.8 200
}

// DryRun tries out a new limit: the handler logs which requests would be denied.
func ExampleDryRun() {
	h := limited(func(_ http.ResponseWriter, r *http.Request) {
		if res, ok := httplimit.Result(r.Context()); ok && !res.Allowed {
			fmt.Println("would be denied:", res.LimitName)
		}
	}, guard.DryRun())

	for range 3 {
		fmt.Println(get(h, "/").Code)
	}
	// Output:
	// 200
	// 200
	// would be denied: fixed-1h
	// 200
}

func ExampleHeaders() {
	h := limited(hello, guard.Headers(guard.IETF))

	w := get(h, "/")
	fmt.Println("RateLimit-Policy:", w.Header().Get("RateLimit-Policy"))
	fmt.Println("RateLimit:", w.Header().Get("RateLimit"))
	// Output:
	// RateLimit-Policy: "api";q=2;w=3600
	// RateLimit: "api";r=1;t=3600
}

// Clients that are denied together must not come back together. The limit is available again after
// an hour, and each client gets a different Retry-After of one to one and a half hours.
func ExampleRetryJitter() {
	h := limited(hello, guard.RetryJitter(0.5))

	get(h, "/")
	get(h, "/")
	waits := map[string]bool{}
	for range 20 {
		seconds := get(h, "/").Header().Get("Retry-After")
		waits[seconds] = true
		if n, err := strconv.Atoi(seconds); err != nil || n < 3599 || n > 5400 {
			fmt.Println(n, err)
		}
	}
	fmt.Println(len(waits) > 1)
	// Output: true
}

// These are the headers of the first drafts of the IETF, in which the reset is in seconds from now.
func ExampleHeaderPrefix() {
	h := limited(hello, guard.HeaderPrefix("RateLimit-"), guard.ResetInSeconds())

	w := get(h, "/")
	for _, name := range []string{"RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"} {
		fmt.Println(name+":", w.Header().Get(name))
	}
	// Output:
	// RateLimit-Limit: 2
	// RateLimit-Remaining: 1
	// RateLimit-Reset: 3600
}

// Clients of an hourly limit get a Retry-After of one minute. The Result still contains the whole wait.
func ExampleMaxRetryAfter() {
	denied := func(w http.ResponseWriter, r *http.Request) {
		res, _ := httplimit.Result(r.Context())
		_, _ = fmt.Fprint(w, "denied for ", res.RetryAfter.Round(time.Minute))
	}
	h := limited(hello, guard.MaxRetryAfter(time.Minute), guard.RetryAfterMs(), httplimit.OnDenied(http.HandlerFunc(denied)))

	get(h, "/")
	get(h, "/")
	w := get(h, "/")
	fmt.Println(w.Header().Get("Retry-After"), w.Header().Get("Retry-After-Ms"), w.Body)
	// Output: 60 60000 denied for 1h0m0s
}

// An error handler answers with the same body as the middleware.
func ExampleProblem() {
	render := func(w http.ResponseWriter, status int, err error) {
		w.Header().Set("Content-Type", guard.ProblemType)
		w.WriteHeader(status)
		_, _ = w.Write(guard.Problem(status, err))
	}
	denied := &guard.DeniedError{Result: core.Result{LimiterName: "api", Limit: 100, RetryAfter: 36 * time.Second}}

	w := httptest.NewRecorder()
	render(w, http.StatusTooManyRequests, fmt.Errorf("middleware: %w", denied))
	fmt.Println(strings.ReplaceAll(w.Body.String(), ",", ",\n "))
	// Output:
	// {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",
	//  "title":"Request cannot be satisfied as assigned quota has been exceeded",
	//  "status":429,
	//  "violated-policies":["api"],
	//  "limit":100,
	//  "retry-after":36}
}

// In a framework whose error handler answers, the handler finds the decision in the error.
func ExampleDeniedError() {
	lim, _ := core.NewMemory("calls", core.FixedWindow(core.PerHour(1)))
	res, _ := lim.AllowN(context.Background(), "k", 2)
	err := fmt.Errorf("serving a call: %w", &guard.DeniedError{Result: res})

	if denied := (*guard.DeniedError)(nil); errors.As(err, &denied) {
		fmt.Println(err, denied.Result.Limit)
	}
	// Output: serving a call: redislimit: limiter "calls": limit "fixed-1h" exceeded 1
}
