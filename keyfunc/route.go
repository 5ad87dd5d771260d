package keyfunc

import "fmt"

// Route returns a Func that counts by the pattern that the request matched, such as "/users/{id}". A
// client can invent paths, but not patterns: your service has only a few. [Join] Route with another key
// to limit each client on each route.
//
// If the framework does not know the route yet, the error is [ErrNoKey]. With net/http and Fiber, mount the
// middleware on the route itself. Gin and Echo know the route in middleware that is mounted with Use; Echo
// does not know it in Pre.
//
// Take care if a net/http mux is mounted in another one. Middleware around the inner mux sees the pattern
// of the outer mux, which is the same for all routes of the inner mux. Middleware on a route of the inner
// mux sees only the pattern of the inner mux. For example, two inner muxes, one below /v1 and one below
// /v2, can both have the route "GET /items". With http.StripPrefix, these are one route with one count.
// Join Route with a key that tells these routes apart, or give each route its own limiter.
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

// ForRoute returns the key under which [Route] counts the pattern. Write the pattern in the notation of
// your framework, such as "/users/{id}" or "/users/:id". Use ForRoute for Peek and Reset without a request.
func ForRoute(pattern string) string { return "route:" + pattern }
