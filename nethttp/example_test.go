package httplimit_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/keyfunc"
	httplimit "github.com/redislimit/redislimit/nethttp"
)

func ExampleMiddleware() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	lim := core.MustNew(rdb, "api", core.TokenBucket(core.PerMinute(100)))

	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) })
	handler := httplimit.Middleware(lim, keyfunc.IP())(mux)

	log.Fatal(http.ListenAndServe("localhost:8080", handler))
}

func ExampleOnDenied() {
	_ = httplimit.OnDenied(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // pass it to a Middleware
		res, _ := httplimit.Result(r.Context())
		_, _ = fmt.Fprintf(w, "slow down: %d is the limit\n", res.Limit) // with status 429
	}))
}

func ExampleOnError() {
	_ = httplimit.OnError(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { // pass it to a Middleware
		_, _ = fmt.Fprintln(w, "try again soon") // with status 503
	}))
}

func ExampleKey() {
	_ = httplimit.Key(func(r *http.Request) (string, error) { // pass it to a Middleware
		if r.PathValue("tenant") == "" {
			return "", keyfunc.ErrNoKey
		}
		return "tenant:" + r.PathValue("tenant"), nil
	})
}

func ExampleResult() {
	_ = func(w http.ResponseWriter, r *http.Request) {
		if res, ok := httplimit.Result(r.Context()); ok {
			_, _ = fmt.Fprintln(w, res.Remaining, "left")
		}
	}
}

// An attacker invents an API key for every request, and an address besides. Keys
// that nobody issued count as missing, and nobody trusts the header: all the
// attacker's requests are one client's, that of its address.
func ExampleMiddleware_inventedKeys() {
	lim, err := core.NewMemory("api", core.FixedWindow(core.PerMinute(10)))
	if err != nil {
		log.Fatal(err)
	}
	issued := keyfunc.Known(func(key string) bool { return key == "key-1" })
	served := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	handler := httplimit.Middleware(lim, keyfunc.APIKey("X-API-Key", issued))(served)

	passed := 0
	for i := range 1000 {
		r := httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/", nil)
		r.Header.Set("X-API-Key", fmt.Sprint("invented-", i))
		r.Header.Set("X-Forwarded-For", fmt.Sprintf("198.51.100.%d", i%256))
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code == http.StatusOK {
			passed++
		}
	}
	fmt.Println(passed, "of 1000 passed")
	// Output: 10 of 1000 passed
}
