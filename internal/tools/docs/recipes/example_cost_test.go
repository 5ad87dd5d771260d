package recipes_test

import (
	"fmt"
	"net/http"
	"sync"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/keyfunc"
	httplimit "github.com/redislimit/redislimit/nethttp"
)

func ok(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "ok") }

func Example_costByRoute() {
	list, export := http.HandlerFunc(ok), http.HandlerFunc(ok)

	lim := core.MustNew(rdb, "units", core.TokenBucket(core.PerMinute(100)))
	costs := func(n int64) func(http.Handler) http.Handler {
		cost := guard.Cost(func(keyfunc.Request) int64 { return n })
		return httplimit.Middleware(lim, keyfunc.IP(), cost)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /items", costs(1)(list))
	mux.Handle("POST /export", costs(20)(export))

	fmt.Println(get(mux, "/items").Header().Get("X-RateLimit-Remaining"))
	fmt.Println(send(mux, http.MethodPost, "/export", "").Header().Get("X-RateLimit-Remaining"))
	// Output:
	// 99
	// 79
}

func Example_costAfter() {
	answer := func(*http.Request) (text string, tokens int64) { return "42", 1500 }

	lim := core.MustNew(rdb, "tokens", core.TokenBucket(core.PerMinute(1000)))
	limited := httplimit.Middleware(lim, keyfunc.IP(),
		guard.CostAfter(),
		guard.Cost(func(keyfunc.Request) int64 { return 200 })) // reserved until the cost is known
	handler := limited(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, tokens := answer(r)
		httplimit.SetCost(r.Context(), tokens)
		_, _ = fmt.Fprint(w, text)
	}))

	for range 2 {
		show(get(handler, "/"), "X-RateLimit-Remaining", "Retry-After")
	}
	// Output:
	// 200 800
	// 429 0 42
}

func Example_inFlight() {
	began, finish := make(chan bool), make(chan bool)
	report := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { began <- true; <-finish })

	lim := core.MustNew(rdb, "reports", core.InFlight(2))
	handler := httplimit.Middleware(lim, keyfunc.IP())(report)

	var running sync.WaitGroup
	run := func() {
		running.Go(func() { get(handler, "/report") })
		<-began
	}
	run()
	run()
	show(get(handler, "/report"), "X-RateLimit-Limit", "X-RateLimit-Remaining", "Retry-After")

	close(finish)
	running.Wait()
	run() // both slots are free again
	running.Wait()
	// Output: 429 2 0 1
}
