package keyfunc

import "fmt"

// Route returns a Func that counts by the pattern that the request matched, such
// as "/users/{id}", and so never by what a client writes into the path. Join it
// with another key to limit each client on each route.
//
// Where the framework does not know the route yet it is [ErrNoKey], and the
// request is limited by its peer's address: mount the middleware on the route
// itself with net/http and Fiber. Gin and Echo know it in Use already, Echo not in
// Pre. Around a net/http mux that is mounted in another one the route is the
// pattern of the outer mux, one for all of the inner one's.
func Route() Func {
	missing := fmt.Errorf("%w: the route is not known here: mount the middleware on the route itself", ErrNoKey)
	return func(r Request) (string, error) {
		route := r.Route()
		if route == "" {
			return "", missing
		}
		return "route:" + route, nil
	}
}
