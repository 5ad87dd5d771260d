// Command nethttp is the first program in the README.
package main

import (
	"log"
	"net/http"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/keyfunc"
	httplimit "github.com/redislimit/redislimit/nethttp"
)

func main() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
	lim := core.MustNew(rdb, "api", core.TokenBucket(core.PerMinute(100)))

	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello\n")) })
	handler := httplimit.Middleware(lim, keyfunc.IP())(mux)

	log.Fatal(http.ListenAndServe("localhost:8080", handler))
}
