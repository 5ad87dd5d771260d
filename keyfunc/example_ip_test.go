package keyfunc_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/keyfunc"
	httplimit "github.com/redislimit/redislimit/nethttp"
)

// client prints who sent a request with headers from remote, as IP with options
// sees it. Programs pass keyfunc.IP(options...) to a Middleware.
func client(remote string, headers http.Header, options ...keyfunc.IPOption) {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr, r.Header = remote, headers
	byIP := keyfunc.IP(options...)
	lim, _ := core.NewMemory("example", core.FixedWindow(core.PerHour(1)))
	shown := func(r keyfunc.Request) (string, error) {
		key, err := byIP(r)
		fmt.Println(key)
		return key, err
	}
	httplimit.Middleware(lim, shown)(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), r)
}

// No header is trusted by default. An IPv6 client is its network.
func ExampleIP() {
	forged := http.Header{"X-Forwarded-For": {"192.0.2.99"}}
	client("203.0.113.7:4711", forged)
	client("[2001:db8:1:2:3:4:5:6]:4711", forged)
	// Output:
	// ip:203.0.113.7
	// ip:2001:db8:1:2::/64
}

// All limiters of a service can share their IPOptions.
func ExampleIPOption() {
	ours := []keyfunc.IPOption{keyfunc.TrustedProxies("10.0.0.0/8"), keyfunc.IPv6Prefix(56)}

	client("10.0.0.5:4711", http.Header{"X-Forwarded-For": {"2001:db8:1:2::3"}}, ours...)
	// Output: ip:2001:db8:1::/56
}

// Behind proxies of one's own: only what these have added to the header is trusted.
// What is further left was sent by the client.
func ExampleTrustedProxies() {
	headers := http.Header{"X-Forwarded-For": {"192.0.2.99, 203.0.113.7, 10.0.0.6"}}

	client("10.0.0.5:4711", headers, keyfunc.TrustedProxies("10.0.0.0/8"))
	client("203.0.113.8:4711", headers, keyfunc.TrustedProxies("10.0.0.0/8")) // past the proxies
	// Output:
	// ip:203.0.113.7
	// ip:203.0.113.8
}

// The addresses of the proxies are in the service's configuration.
func ExampleParseProxies() {
	proxies := strings.Fields("10.0.0.0/8 10.0.0.256") // as of os.Getenv

	option, err := keyfunc.ParseProxies(proxies...)
	fmt.Println(option != nil, err)
	// Output: false keyfunc: ParseProxies("10.0.0.256"): want an address or a range, such as "10.0.0.0/8", or "unix"
}

// Behind a load balancer whose address changes.
func ExampleTrustedHops() {
	headers := http.Header{"X-Forwarded-For": {"192.0.2.99, 203.0.113.7"}}

	client("10.3.1.9:4711", headers, keyfunc.TrustedHops(1))
	// Output: ip:203.0.113.7
}

// Behind an edge that sets a header of its own, and is the only way in.
func ExampleTrustedHeader() {
	headers := http.Header{"Cf-Connecting-Ip": {"203.0.113.7"}, "X-Forwarded-For": {"192.0.2.99"}}

	client("198.51.100.1:4711", headers, keyfunc.TrustedHeader("CF-Connecting-IP"))
	// Output: ip:203.0.113.7
}

// Behind a proxy that writes RFC 7239.
func ExampleForwarded() {
	headers := http.Header{"Forwarded": {`for="[2001:db8::7]:4711";proto=https`}}

	client("10.0.0.5:4711", headers, keyfunc.Forwarded(), keyfunc.TrustedProxies("10.0.0.5"))
	// Output: ip:2001:db8::/64
}

// A /64 is one client by default. Here it is a /56, as some sites are given one.
func ExampleIPv6Prefix() {
	client("[2001:db8:1:2::3]:4711", nil, keyfunc.IPv6Prefix(56))
	// Output: ip:2001:db8:1::/56
}

// All of a /24 are one client.
func ExampleIPv4Prefix() {
	client("203.0.113.7:4711", nil, keyfunc.IPv4Prefix(24))
	// Output: ip:203.0.113.0/24
}

// What a Middleware counts a request by that carries no key: never in the bucket of
// an IP.
func ExamplePeer() {
	lim, _ := core.NewMemory("example", core.FixedWindow(core.PerHour(1)))
	peer := keyfunc.Peer()
	shown := func(r keyfunc.Request) (string, error) {
		key, err := peer(r)
		fmt.Println(key)
		return key, err
	}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	httplimit.Middleware(lim, shown)(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), r)
	// Output: peer:192.0.2.1
}
