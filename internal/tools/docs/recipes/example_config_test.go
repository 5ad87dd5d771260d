package recipes_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/redislimit/redislimit/_examples/recipes/contracts"
	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/keyfunc"
	httplimit "github.com/redislimit/redislimit/nethttp"
)

func Example_customers() {
	mux := newMux()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	rdb.HSet(ctx, "contracts",
		"acme", "token_bucket 250/1m name=requests", "initech", "token_bucket 1000/1m burst=2000 name=requests")

	table := contracts.New(ctx, rdb, slog.Default())
	lim := core.MustNew(rdb, "customers", core.TokenBucket(core.PerMinute(60), core.LimitName("requests")))
	byCustomer := guard.LimiterFor(func(r keyfunc.Request) (*core.Limiter, error) {
		u, _ := r.Value(userKey{}).(user)
		return table.Limiter(lim, u.name)
	})
	handler := authenticate(httplimit.Middleware(lim, keyfunc.User(userKey{}), byCustomer)(mux))

	for _, name := range []string{"acme", "initech", "alice", "acme"} {
		fmt.Print(name, " ")
		show(get(handler, "/", "User: "+name), "X-RateLimit-Limit", "X-RateLimit-Remaining")
	}
	// Output:
	// acme 200 250 249
	// initech 200 2000 1999
	// alice 200 60 59
	// acme 200 250 248
}

func Example_reserve() {
	hello := newMux()
	mux := http.NewServeMux()

	lim := core.MustNew(rdb, "shop", core.TokenBucket(core.PerSecond(100), core.Burst(10), core.LimitName("backend")))
	lesser, err := lim.With(core.TokenBucket(core.PerSecond(100), core.Burst(7), core.LimitName("backend")))
	if err != nil {
		panic(err)
	}
	mux.Handle("POST /orders", httplimit.Middleware(lim, keyfunc.Global())(hello))
	mux.Handle("GET /suggestions", httplimit.Middleware(lesser, keyfunc.Global())(hello))

	count := map[string]map[int]int{"GET": {}, "POST": {}}
	for range 20 {
		count["GET"][get(mux, "/suggestions").Code]++
	}
	for range 20 {
		count["POST"][send(mux, http.MethodPost, "/orders", "").Code]++
	}
	fmt.Println(count)
	// Output: map[GET:map[200:7 429:13] POST:map[200:3 429:17]]
}
