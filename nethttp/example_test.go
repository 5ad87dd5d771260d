package httplimit_test

import (
	"fmt"
	"log"
	"net/http"

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
