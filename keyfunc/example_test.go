package keyfunc_test

import (
	"errors"
	"fmt"

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
