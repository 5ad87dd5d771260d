package keyfunc_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/keyfunc"
	httplimit "github.com/redislimit/redislimit/nethttp"
)

// Alice has mistyped her password too often. Support unlocks her login from her address:
// the key is made of the same parts as that of the middleware.
func ExampleForJoin() {
	lim, _ := core.NewMemory("logins", core.SlidingWindowLog(core.PerHour(2)))
	byLogin := keyfunc.Join(keyfunc.IP(), keyfunc.BasicAuth())
	failed := guard.CountIf(func(status int) bool { return status == http.StatusUnauthorized })
	login := httplimit.Middleware(lim, byLogin, failed)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); password != "right" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	try := func(password string) {
		r := httptest.NewRequest(http.MethodPost, "/login", nil) // from 192.0.2.1
		r.SetBasicAuth("alice", password)
		w := httptest.NewRecorder()
		login.ServeHTTP(w, r)
		fmt.Println(password, w.Code)
	}

	try("rihgt")
	try("rigth")
	try("right")
	ctx, addr := context.Background(), netip.MustParseAddr("192.0.2.1")

	key := keyfunc.ForJoin(keyfunc.ForIP(addr), keyfunc.ForBasicAuth("alice"))
	err := lim.Reset(ctx, key)

	fmt.Println(key, err)
	try("right")
	// Output:
	// rihgt 401
	// rigth 401
	// right 429
	// join:ip:192.0.2.1,basic:alice <nil>
	// right 200
}

func ExampleForBearer() {
	fmt.Println(keyfunc.ForBearer("token-1"))
	// Output: bearer:PwiqzhIu4jaEMsHKI6BJvGQL
}

func ExampleForCookie() {
	fmt.Println(keyfunc.ForCookie("s-1"))
	// Output: cookie:aoQLr12MP_JBaIrrFFRuZTd0
}

func ExampleForQuery() {
	fmt.Println(keyfunc.ForQuery("key-1"))
	// Output: query:vil0VGl443OebW2oXEvp8zTO
}

func ExampleForBasicAuth() {
	fmt.Println(keyfunc.ForBasicAuth("alice"))
	// Output: basic:alice
}

func ExampleForHeader() {
	fmt.Println(keyfunc.ForHeader("X-Tenant", "acme"))
	// Output: header:X-Tenant:acme
}

func ExampleForMethod() {
	fmt.Println(keyfunc.ForMethod(http.MethodPost))
	// Output: method:POST
}

// The pattern is written as the framework writes it.
func ExampleForRoute() {
	fmt.Println(keyfunc.ForRoute("GET /users/{id}")) // net/http
	fmt.Println(keyfunc.ForRoute("/users/:id"))      // Gin, Echo and Fiber
	// Output:
	// route:GET /users/{id}
	// route:/users/:id
}

// How much is left for the service as a whole.
func ExampleForGlobal() {
	lim, _ := core.NewMemory("api", core.FixedWindow(core.PerHour(1000)))

	res, _ := lim.Peek(context.Background(), keyfunc.ForGlobal())
	fmt.Println(res.Remaining)
	// Output: 1000
}

// The count of requests without a key that came from one address.
func ExampleForPeer() {
	fmt.Println(keyfunc.ForPeer(netip.MustParseAddr("192.0.2.1")))
	// Output: peer:192.0.2.1
}
