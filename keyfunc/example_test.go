package keyfunc_test

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/redislimit/redislimit/keyfunc"
)

// The user if somebody is signed in, and else the address.
func ExampleFirstOf() {
	key := keyfunc.FirstOf(keyfunc.User("user"), keyfunc.IP())
	_ = key // pass it to a Middleware
}

// Each user has a budget of their own at each address.
func ExampleJoin() {
	key := keyfunc.Join(keyfunc.User("user"), keyfunc.IP())
	_ = key // pass it to a Middleware
}

// Each client has a budget of its own on each route.
func ExampleRoute() {
	key := keyfunc.Join(keyfunc.Route(), keyfunc.IP())
	_ = key // pass it to a Middleware
}

func ExampleIP() {
	key := keyfunc.IP()
	_ = key // pass it to a Middleware
}

func ExampleUser() {
	type userKey struct{} // where your authentication stores the user
	key := keyfunc.User(userKey{})
	_ = key // pass it to a Middleware, mounted after authentication
}

// A key that nobody issued counts as missing, and its sender by address: inventing
// keys gains nothing.
func ExampleAPIKey() {
	issued := map[string]bool{"key-1": true, "key-2": true}
	key := keyfunc.APIKey("X-API-Key", keyfunc.Known(func(k string) bool { return issued[k] }))
	_ = key // pass it to a Middleware
}

// Behind proxies of one's own: their addresses, and nobody else's word.
func ExampleTrustedProxies() {
	key := keyfunc.IP(keyfunc.TrustedProxies("10.0.0.0/8"))
	_ = key // pass it to a Middleware
}

// Behind a load balancer whose address changes.
func ExampleTrustedHops() {
	key := keyfunc.IP(keyfunc.TrustedHops(1))
	_ = key // pass it to a Middleware
}

// Behind an edge that sets a header of its own, and is the only way in.
func ExampleTrustedHeader() {
	key := keyfunc.IP(keyfunc.TrustedHeader("CF-Connecting-IP"))
	_ = key // pass it to a Middleware
}

func ExampleForwarded() {
	key := keyfunc.IP(keyfunc.Forwarded(), keyfunc.TrustedProxies("10.0.0.5"))
	_ = key // pass it to a Middleware
}

// Tokens that were issued, under digests that nobody can guess.
func ExampleBearer() {
	issued := func(token string) bool { return token == "t-1" }
	key := keyfunc.Bearer(keyfunc.Known(issued), keyfunc.Secret("a random key of 16 bytes or more"))
	_ = key // pass it to a Middleware
}

// A support tool looks a client up under the key that requests are counted by.
func ExampleForIP() {
	fmt.Println(keyfunc.ForIP(netip.MustParseAddr("2001:db8::9")))
	fmt.Println(keyfunc.ForUser("alice"))
	// Output:
	// ip:2001:db8::/64
	// user:alice
}

// Any function can be a Func. Tag the key, so that it meets no other kind.
func ExampleFunc() {
	var tenant keyfunc.Func = func(r keyfunc.Request) (string, error) {
		switch host := r.Header("Host"); host {
		case "":
			return "", keyfunc.ErrNoKey
		case "broken":
			return "", errors.New("no such tenant") // answered with 500
		default:
			return "tenant:" + host, nil
		}
	}
	fmt.Println(tenant != nil)
	// Output: true
}
