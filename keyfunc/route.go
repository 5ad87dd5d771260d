package keyfunc

import "fmt"

// Route returns a Func that counts by the pattern that the request matched, such as "/users/{id}",
// and so never by what a client writes into the path. Join it with another key to limit each client
// on each route.
//
// Where the framework does not know the route yet, the error is [ErrNoKey]. With net/http and
// Fiber, mount the middleware on the route itself. Gin and Echo know the route in Use; Echo does
// not in Pre.
//
// If a net/http mux is mounted in another one, middleware around the inner mux sees the pattern of
// the outer one, which is the same for all routes of the inner one. Middleware on a route of the
// inner mux sees only the pattern of that mux: with http.StripPrefix, "GET /items" below /v1 and
// below /v2 then are one route, with one count. Join Route with a key that tells them apart, or give
// each a limiter of its own.
func Route() Func {
	missing := fmt.Errorf("%w: the route is not known here: mount the middleware on the route itself", ErrNoKey)
	return func(r Request) (string, error) {
		route := r.Route()
		if route == "" {
			return "", missing
		}
		return ForRoute(route), nil
	}
}

// ForRoute returns the key under which [Route] counts the pattern, in the framework's own notation,
// such as "/users/{id}" or "/users/:id": for Peek and Reset without a request.
func ForRoute(pattern string) string { return "route:" + pattern }
