package keyfunc_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/keyfunc"
	httplimit "github.com/redislimit/redislimit/nethttp"
)

// request returns a request from a peer, with a header.
func request(peer, name, value string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = peer
	r.Header.Set(name, value)
	return r
}

// show prints the key that f returns for r. Programs pass f to a Middleware.
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

// userKey is the key under which authentication stores the user in a request's context.
type userKey struct{}

// These key functions are enough for most services.
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

// The authentication stores a string, an integer or a value with a String method. ForUser makes the
// same key for a Reset or a Peek.
func ExampleUser() {
	for _, user := range []any{"alice", 42, netip.MustParseAddr("203.0.113.7")} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		show(keyfunc.User(userKey{}), r.WithContext(context.WithValue(r.Context(), userKey{}, user)))
	}
	fmt.Println(keyfunc.ForUser("alice"))
	// Output:
	// user:alice
	// user:42
	// user:203.0.113.7
	// user:alice
}

// No header is trusted by default. An IPv6 client is counted by its network, which is a /64
// unless the option IPv6Prefix sets another length.
func ExampleIP() {
	show(keyfunc.IP(), request("203.0.113.7:4711", "X-Forwarded-For", "192.0.2.99"))
	show(keyfunc.IP(), request("[2001:db8:1:2:3:4:5:6]:4711", "X-Forwarded-For", "192.0.2.99"))
	show(keyfunc.IP(keyfunc.IPv6Prefix(56)), request("[2001:db8:1:2:3:4:5:6]:4711", "X-Forwarded-For", "192.0.2.99"))
	// Output:
	// ip:203.0.113.7
	// ip:2001:db8:1:2::/64
	// ip:2001:db8:1::/56
}

// Behind your own proxies, only the addresses that they have added to the header are trusted. The addresses
// further left were sent by the client.
func ExampleTrustedProxies() {
	key := keyfunc.IP(keyfunc.TrustedProxies("10.0.0.0/8"))

	show(key, request("10.0.0.5:4711", "X-Forwarded-For", "192.0.2.99, 203.0.113.7, 10.0.0.6"))
	show(key, request("203.0.113.8:4711", "X-Forwarded-For", "192.0.2.99")) // past the proxies
	// Output:
	// ip:203.0.113.7
	// ip:203.0.113.8
}

// The addresses of the proxies are in the service's configuration.
func ExampleParseProxies() {
	proxies := strings.Fields("10.0.0.0/8 10.0.0.256") // as os.Getenv returns them

	option, err := keyfunc.ParseProxies(proxies...)
	fmt.Println(option != nil, err)
	// Output: false keyfunc: ParseProxies("10.0.0.256"): want an address or a range, such as "10.0.0.0/8", or "unix"
}

// A load balancer whose address changes adds the client's address to the header.
func ExampleTrustedHops() {
	show(keyfunc.IP(keyfunc.TrustedHops(1)), request("10.3.1.9:4711", "X-Forwarded-For", "192.0.2.99, 203.0.113.7"))
	// Output: ip:203.0.113.7
}

// All requests come through an edge that sets a header of its own.
func ExampleTrustedHeader() {
	show(keyfunc.IP(keyfunc.TrustedHeader("CF-Connecting-IP")), request("198.51.100.1:4711", "CF-Connecting-IP", "203.0.113.7"))
	// Output: ip:203.0.113.7
}

// A proxy adds the client's address to the header of RFC 7239.
func ExampleForwarded() {
	key := keyfunc.IP(keyfunc.Forwarded(), keyfunc.TrustedProxies("10.0.0.5"))

	show(key, request("10.0.0.5:4711", "Forwarded", `for="[2001:db8::7]:4711";proto=https`))
	// Output: ip:2001:db8::/64
}

// A key that was not issued counts as a missing key, and its sender is counted by address, so a client gains nothing by
// inventing keys. The key itself is not stored.
func ExampleAPIKey() {
	issued := map[string]bool{"key-1": true, "key-2": true}
	byKey := keyfunc.APIKey("X-API-Key", keyfunc.Known(func(k string) bool { return issued[k] }))

	show(byKey, request("192.0.2.1:4711", "X-API-Key", "key-1"))
	show(byKey, request("192.0.2.1:4711", "X-API-Key", "invented"))
	// Output:
	// apikey:vil0VGl443OebW2oXEvp8zTO
	// keyfunc: the request carries no such key
}

// Without the Secret, nobody who can read the keys in Redis can find a credential by trying. Support finds the count of a
// credential by passing the same options.
func ExampleSecret() {
	secret := keyfunc.Secret("a random key of 16 bytes or more")

	show(keyfunc.Bearer(secret), request("192.0.2.1:4711", "Authorization", "Bearer token-1"))
	fmt.Println(keyfunc.ForBearer("token-1", secret))
	// Output:
	// bearer:pavIordqNClnAskO7CLFTfy5
	// bearer:pavIordqNClnAskO7CLFTfy5
}

// Requests of signed-in users are counted by user, and all others by address.
func ExampleFirstOf() {
	key := keyfunc.FirstOf(keyfunc.User(userKey{}), keyfunc.IP())

	r := httptest.NewRequest(http.MethodGet, "/", nil)
	show(key, r)
	show(key, r.WithContext(context.WithValue(r.Context(), userKey{}, "alice")))
	// Output:
	// ip:192.0.2.1
	// user:alice
}

// Each team of each tenant has a count of its own. Whatever the two values contain, no two combinations have the same
// key.
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

// Each client has a count of its own for each route. With net/http, the route is known only if the middleware is mounted
// on the route itself.
func ExampleRoute() {
	key := keyfunc.Join(keyfunc.Route(), keyfunc.IP())

	mux := http.NewServeMux()
	mux.HandleFunc("GET /users/{id}", func(_ http.ResponseWriter, r *http.Request) { show(key, r) })
	mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/users/17", nil))
	// Output: join:route:GET /users/{id},ip:192.0.2.1
}

// Any function can be a Func. Begin the key with a tag, so that it never equals a key of another kind.
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

// Alice has mistyped her password too often. Support unlocks her login from her address: ForJoin combines
// the same parts as the middleware's Func.
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
