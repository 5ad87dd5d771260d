package keyfunc_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/keyfunc"
	httplimit "github.com/redislimit/redislimit/nethttp"
)

// show prints the key that f takes from r. Programs pass f to a Middleware.
func show(f keyfunc.Func, r *http.Request) {
	lim, _ := core.NewMemory("example", core.FixedWindow(core.PerHour(1)))
	shown := func(r keyfunc.Request) (string, error) {
		key, err := f(r)
		if err != nil {
			key = err.Error()
		}
		fmt.Println(key)
		return key, nil
	}
	httplimit.Middleware(lim, shown)(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), r)
}

// Most services need no more than these.
func Example() {
	r := httptest.NewRequest(http.MethodGet, "/", nil) // from 192.0.2.1
	r = r.WithContext(context.WithValue(r.Context(), userKey{}, "alice"))

	show(keyfunc.IP(), r)
	show(keyfunc.User(userKey{}), r)
	show(keyfunc.Join(keyfunc.User(userKey{}), keyfunc.Method()), r)
	// Output:
	// ip:192.0.2.1
	// user:alice
	// join:user:alice,method:GET
}

// userKey is where authentication stores the user in a request's context.
type userKey struct{}

// The user of a request that is signed in, and else the address.
func ExampleFirstOf() {
	key := keyfunc.FirstOf(keyfunc.User(userKey{}), keyfunc.IP())

	r := httptest.NewRequest(http.MethodGet, "/", nil)
	show(key, r)
	show(key, r.WithContext(context.WithValue(r.Context(), userKey{}, "alice")))
	// Output:
	// ip:192.0.2.1
	// user:alice
}

// Each team of each tenant is counted on its own. Whatever the two values contain, no
// two combinations have the same key.
func ExampleJoin() {
	key := keyfunc.Join(keyfunc.Header("X-Tenant"), keyfunc.Header("X-Team"))

	for _, of := range [][2]string{{"a", "b,c"}, {"a,b", "c"}} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("X-Tenant", of[0])
		r.Header.Set("X-Team", of[1])
		show(key, r)
	}
	// Output:
	// join:header:X-Tenant:a,header:X-Team:b%2Cc
	// join:header:X-Tenant:a%2Cb,header:X-Team:c
}

// Each client is counted on its own on each route. With net/http the route is
// known where the middleware is mounted on the route itself.
func ExampleRoute() {
	key := keyfunc.Join(keyfunc.Route(), keyfunc.IP())

	mux := http.NewServeMux()
	mux.HandleFunc("GET /users/{id}", func(_ http.ResponseWriter, r *http.Request) { show(key, r) })
	mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/users/17", nil))
	// Output: join:route:GET /users/{id},ip:192.0.2.1
}

func ExampleMethod() {
	show(keyfunc.Method(), httptest.NewRequest(http.MethodPost, "/", nil))
	show(keyfunc.Method(), httptest.NewRequest("INVENTED", "/", nil))
	// Output:
	// method:POST
	// method:other
}

// A limit on the service as a whole.
func ExampleGlobal() {
	show(keyfunc.Global(), httptest.NewRequest(http.MethodGet, "/", nil))
	// Output: global
}

// A tenant, which a gateway of one's own has put there.
func ExampleHeader() {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("X-Tenant", "acme")
	show(keyfunc.Header("X-Tenant"), r)
	// Output: header:X-Tenant:acme
}

// Any function can be a Func. Tag the key, so that it is never one of another kind.
func ExampleFunc() {
	var tenant keyfunc.Func = func(r keyfunc.Request) (string, error) {
		switch id := r.Query("tenant"); id {
		case "":
			return "", keyfunc.ErrNoKey // counted by its peer's address
		case "broken":
			return "", errors.New("no such tenant") // answered with 500
		default:
			return "tenant:" + id, nil
		}
	}
	show(tenant, httptest.NewRequest(http.MethodGet, "/?tenant=acme", nil))
	show(tenant, httptest.NewRequest(http.MethodGet, "/", nil))
	// Output:
	// tenant:acme
	// keyfunc: the request carries no such key
}

// A Func sees the same of each request, whatever the framework; the framework's own
// is behind Unwrap.
func ExampleRequest() {
	secure := func(r keyfunc.Request) (string, error) {
		native, _ := r.Unwrap().(*http.Request)
		return fmt.Sprintf("tls:%t:%s", native.TLS != nil, r.Method()), nil
	}
	show(secure, httptest.NewRequest(http.MethodGet, "/", nil))
	// Output: tls:false:GET
}

// What a Func has to say goes where the limiter logs.
func ExampleLoggingRequest() {
	deprecated := func(r keyfunc.Request) (string, error) {
		if lr, ok := r.(keyfunc.LoggingRequest); ok && r.Query("tenant") != "" {
			lr.Logger().Warn("the query parameter tenant is deprecated")
		}
		return "tenant:" + r.Query("tenant"), nil
	}
	plain := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: plain}))
	lim, _ := core.NewMemory("api", core.FixedWindow(core.PerHour(100)), core.Logger(logger))

	served := httplimit.Middleware(lim, deprecated)(http.NotFoundHandler())
	served.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/?tenant=acme", nil))
	// Output: level=WARN msg="the query parameter tenant is deprecated" limiter=api
}

// A support tool looks a user up under the key that requests are counted by.
func ExampleForUser() {
	lim, _ := core.NewMemory("api", core.FixedWindow(core.PerHour(100)))
	ctx := context.Background()

	_, _ = lim.Allow(ctx, keyfunc.ForUser("alice")) // as keyfunc.User does
	res, _ := lim.Peek(ctx, keyfunc.ForUser("alice"))
	fmt.Println(keyfunc.ForUser("alice"), res.Remaining)
	// Output: user:alice 99
}

func ExampleForIP() {
	fmt.Println(keyfunc.ForIP(netip.MustParseAddr("192.0.2.1")))
	fmt.Println(keyfunc.ForIP(netip.MustParseAddr("2001:db8::9")))
	fmt.Println(keyfunc.ForIP(netip.MustParseAddr("2001:db8::9"), keyfunc.IPv6Prefix(56)))
	// Output:
	// ip:192.0.2.1
	// ip:2001:db8::/64
	// ip:2001:db8::/56
}
