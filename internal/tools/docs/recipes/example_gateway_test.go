package recipes_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/keyfunc"
	httplimit "github.com/redislimit/redislimit/nethttp"
)

func Example_gateway() {
	behind := core.MustNew(rdb, "behind", core.FixedWindow(core.PerMinute(2)))
	service := httptest.NewServer(httplimit.Middleware(behind, keyfunc.Global())(newMux()))
	defer service.Close()
	backend, err := url.Parse(service.URL)
	if err != nil {
		panic(err)
	}
	lim := core.MustNew(rdb, "gateway", core.FixedWindow(core.PerMinute(3)))

	proxy := httputil.NewSingleHostReverseProxy(backend)
	handler := httplimit.Middleware(lim, keyfunc.IP(), guard.HeadersOnDenial())(proxy)

	gateway := httptest.NewServer(handler)
	defer gateway.Close()
	for range 4 {
		response, err := http.Get(gateway.URL)
		if err != nil {
			panic(err)
		}
		_ = response.Body.Close()
		fmt.Println(response.StatusCode, response.Header.Values("X-RateLimit-Limit"), response.Header.Values("X-RateLimit-Remaining"))
	}
	// Output:
	// 200 [2] [1]
	// 200 [2] [0]
	// 429 [2] [0]
	// 429 [3] [0]
}
