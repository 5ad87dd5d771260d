package httplimit_test

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/keyfunc"
	httplimit "github.com/redislimit/redislimit/nethttp"
)

func ExampleMiddleware() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
	lim := core.MustNew(rdb, "api", core.TokenBucket(core.PerMinute(100)))

	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) })
	handler := httplimit.Middleware(lim, keyfunc.IP())(mux)

	log.Fatal(http.ListenAndServe("localhost:8080", handler))
}

// limited returns a handler that admits one request per hour from each client.
func limited(next http.HandlerFunc, key keyfunc.Func, options ...guard.Option) http.Handler {
	lim, _ := core.NewMemory("api", core.FixedWindow(core.PerHour(1)))
	return httplimit.Middleware(lim, key, options...)(next)
}

// get requests "/" from h and prints the answer.
func get(h http.Handler) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/?tenant=acme", nil))
	fmt.Println(w.Code, w.Body)
}

func hello(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }

// The application answers denied requests itself, with status 429.
func ExampleOnDenied() {
	denied := func(w http.ResponseWriter, r *http.Request) {
		res, _ := httplimit.Result(r.Context())
		_, _ = fmt.Fprintf(w, "slow down: the limit is %d", res.Limit)
	}
	h := limited(hello, keyfunc.IP(), httplimit.OnDenied(http.HandlerFunc(denied)))
	get(h)
	get(h)
	// Output:
	// 200 hello
	// 429 slow down: the limit is 1
}

// With FailClosed, no request is served while Redis does not answer. The status of the answer is 503.
func ExampleOnError() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
	lim := core.MustNew(rdb, "logins", core.FixedWindow(core.PerMinute(5)), core.FailClosed())

	unavailable := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "try again soon") }
	h := httplimit.Middleware(lim, keyfunc.IP(), httplimit.OnError(http.HandlerFunc(unavailable)))(http.HandlerFunc(hello))
	log.Fatal(http.ListenAndServe("localhost:8080", h))
}

// A request can be counted by anything that net/http knows about it. A key function can call other key
// functions.
func ExampleKey() {
	address := keyfunc.IP()
	byTenant := httplimit.Key(func(r *http.Request) (string, error) {
		ip, err := address(httplimit.Request(r))
		return "tenant:" + r.FormValue("tenant") + "," + ip, err
	})
	h := limited(hello, byTenant)
	get(h)
	get(h)
	// Output:
	// 200 hello
	// 429 {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Request cannot be satisfied as assigned quota has been exceeded","status":429,"violated-policies":["api"],"limit":1,"retry-after":3600}
}

// A handler shows how many units are left, without calling Redis again.
func ExampleResult() {
	h := limited(func(w http.ResponseWriter, r *http.Request) {
		res, ok := httplimit.Result(r.Context()) // ok is false if no limiter decided
		_, _ = fmt.Fprintf(w, "%d of %d left, by %v, %v", res.Remaining, res.Limit, res.Source, ok)
	}, keyfunc.IP())
	get(h)
	// Output: 200 0 of 1 left, by memory, true
}

// An API answers the first call with 429, and the second one, which is sent after the Retry-After, with 200. The caller sees only the
// second answer.
func ExampleTransport() {
	calls := 0
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if calls++; calls == 1 {
			w.Header().Set("Retry-After-Ms", "50")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	defer api.Close()

	lim, _ := core.NewMemory("api", core.TokenBucket(core.PerSecond(10)))
	client := &http.Client{Transport: httplimit.Transport(lim,
		func(r *http.Request) string { return r.URL.Host }, // each host has a limit of its own
		httplimit.Retries(1))}
	if response, err := client.Get(api.URL); err == nil {
		_ = response.Body.Close()
		fmt.Println(response.Status, "after", calls, "calls")
	}
	// Output: 200 OK after 2 calls
}

// A gateway to a language model knows the number of tokens of an answer only when the answer is complete. Until then, it
// reserves 500. An answer took 1200 tokens: the next request is denied until the debt is paid.
func ExampleSetCost() {
	lim, _ := core.NewMemory("tokens", core.TokenBucket(core.PerHour(1000)))
	gateway := httplimit.Middleware(lim, keyfunc.IP(),
		guard.CostAfter(), guard.Cost(func(keyfunc.Request) int64 { return 500 }))
	h := gateway(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "an answer")
		httplimit.SetCost(r.Context(), 1200)
	}))

	for range 2 {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", nil))
		fmt.Println(w.Code, w.Header().Get("X-RateLimit-Remaining"))
	}
	// Output:
	// 200 500
	// 429 0
}

// A handler counts by an account that is in the body, which it has parsed, and charges the rows that the query reads.
func ExampleAnswerer() {
	rows := core.MustNewMemory("rows", core.FixedWindow(core.PerHour(1000)))
	limit := httplimit.NewAnswerer()

	export := func(w http.ResponseWriter, r *http.Request) {
		var query struct {
			Account string `json:"account"`
			Rows    int64  `json:"rows"`
		}
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<10)).Decode(&query); err != nil || query.Account == "" || query.Rows < 1 {
			http.Error(w, "want an account, and how many rows", http.StatusBadRequest)
			return
		}
		res, err := rows.AllowN(r.Context(), "account:"+query.Account, query.Rows)
		if limit.Answer(w, r, res, err) {
			return
		}
		_, _ = fmt.Fprintf(w, "%d rows", query.Rows)
	}

	for _, query := range []string{`{"account": "acme", "rows": 600}`, `{"account": "acme", "rows": 500}`, `{"account": "acme", "rows": 400}`} {
		w := httptest.NewRecorder()
		export(w, httptest.NewRequest(http.MethodPost, "/export", strings.NewReader(query)))
		fmt.Println(w.Code, w.Header().Get("X-RateLimit-Remaining"))
	}
	// Output:
	// 200 400
	// 429 400
	// 200 0
}
