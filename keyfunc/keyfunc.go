// Package keyfunc says by what a request is counted. A [Func] takes a key from a request: the
// client's address ([IP]), an authenticated user ([User]), an API key ([APIKey]), or several of
// these, composed with [Join] and [FirstOf].
//
//	httplimit.Middleware(lim, keyfunc.FirstOf(keyfunc.APIKey("X-API-Key", keyfunc.Known(isIssued)), keyfunc.IP()))
//
// No header is trusted by default: behind a proxy, tell IP of it, as by [TrustedProxies].
//
// Keys are tagged by kind, as in "ip:192.0.2.1" and "user:alice", so that keys of different kinds
// are never the same. The package does not depend on Redis or on any web framework: it reads a
// [Request], which each adapter provides.
//
// The functions that make a Func or an option panic at once on a wrong argument, such as an empty
// name or a nil function: that is a mistake in the program.
package keyfunc

import (
	"context"
	"errors"
	"log/slog"
)

// ErrNoKey is the error of a [Func] for a request that does not carry its key. The middleware then
// counts the request by the key of its option guard.Fallback, or else by its peer's address; see
// [Peer].
var ErrNoKey = errors.New("keyfunc: the request carries no such key")

// A Func takes the key from a request. It returns [ErrNoKey] where there is none; the middleware
// answers any other error with status 500 and logs it. Each function that makes a key has a sibling
// that makes the same one without a request, such as [ForUser] of [User], so that support can look
// at a count and reset it.
type Func func(Request) (string, error)

// A Request is what a [Func] can see of a request, whatever the framework. It is valid until the
// Func returns.
type Request interface {
	// Context returns the request's context.
	Context() context.Context
	// Method returns the HTTP method.
	Method() string
	// Path returns the path of the URL as the client sent it. Clients choose it, and one route may
	// have several: Fiber, unless it is configured otherwise, takes /LOGIN and /login/ for /login.
	// So to tell routes apart, use Route.
	Path() string
	// Route returns the pattern that the request matched, such as "/users/{id}", or "" if the
	// framework does not know it where the middleware is mounted.
	Route() string
	// RemoteAddr returns the address of the connection's other end, with its port. It does not
	// depend on any header.
	RemoteAddr() string
	// Header returns the first value of the header called name, or "". net/http, and so Gin and
	// Echo, keep Host elsewhere: take it from Unwrap.
	Header(name string) string
	// HeaderValues returns all lines of the header called name.
	HeaderValues(name string) []string
	// Query returns the first value of the query parameter called name, or "".
	Query(name string) string
	// Cookie returns the value of the cookie called name, or "".
	Cookie(name string) string
	// Value returns what was stored under key in the request's context, or nil.
	Value(key any) any
	// Unwrap returns the framework's own request or context.
	Unwrap() any
}

// A LoggingRequest is a Request that also has a logger, to which [IP] and [Peer] log their one
// warning. Those of all adapters are, with the limiter's logger. For a Request without a logger
// there is no warning.
type LoggingRequest interface {
	Request
	// Logger returns where to log, or nil.
	Logger() *slog.Logger
}
