// Package keyfunc determines what a request is counted by. A [Func] takes a key from a request: the
// client's address ([IP]), an authenticated user ([User]), an API key ([APIKey]), or a combination of
// these, composed with [Join] and [FirstOf].
//
//	httplimit.Middleware(lim, keyfunc.FirstOf(keyfunc.APIKey("X-API-Key", keyfunc.Known(isIssued)), keyfunc.IP()))
//
// No header is trusted by default. If your service runs behind a proxy, give [IP] an option for it, such
// as [TrustedProxies]: otherwise all clients of the proxy are counted as one.
//
// Keys begin with their kind, as in "ip:192.0.2.1" and "user:alice", so that keys of different kinds are
// never equal. The package does not depend on Redis or on any web framework: it reads a [Request], which
// each adapter provides.
//
// Functions that return a Func or an option panic at once if an argument is wrong, such as an empty name or
// a nil function, because that is a mistake in the program.
package keyfunc

import (
	"context"
	"errors"
	"log/slog"
)

// ErrNoKey is the error of a [Func] that finds no key in the request. The middleware then counts the
// request by the key of the option guard.Fallback, or without that option by the peer's address; see
// [Peer].
var ErrNoKey = errors.New("keyfunc: the request carries no such key")

// A Func takes the key from a request. It returns [ErrNoKey] if the request has no key. After any other
// error, the middleware answers with status 500 and logs the error, at most once per minute. An empty key
// without an error is treated like such an error.
//
// Each function that returns a Func, except [FirstOf], has a counterpart that returns the same key without
// a request, such as [ForUser] for [User]. With it, your support can look up a count and reset it.
type Func func(Request) (string, error)

// A Request is the part of a request that a [Func] can see, whatever the framework. A Request must not be
// used after the Func has returned.
type Request interface {
	// Context returns the request's context.
	Context() context.Context
	// Method returns the HTTP method.
	Method() string
	// Path returns the path of the URL. net/http, Gin and Echo have decoded its escapes, such as %2F; by
	// default, Fiber has not. A client can write the path of one route in several ways: by default, Fiber
	// takes /LOGIN and /login/ for /login. To tell routes apart, use Route.
	Path() string
	// Route returns the pattern that the request matched, such as "/users/{id}", or "" if the
	// framework does not know it where the middleware is mounted.
	Route() string
	// RemoteAddr returns the address of the connection's other end, with its port. No adapter takes it
	// from a header, but middleware in front of the limiter may have done so; see [IP].
	RemoteAddr() string
	// Header returns the first value of the header called name, or "". It does not return Host, which
	// net/http, Gin and Echo keep elsewhere: use Unwrap for that.
	Header(name string) string
	// HeaderValues returns all lines of the header called name.
	HeaderValues(name string) []string
	// Query returns the first value of the query parameter called name, or "".
	Query(name string) string
	// Cookie returns the value of the cookie called name, or "".
	Cookie(name string) string
	// Value returns the value that is stored under key in the request's context, or nil.
	Value(key any) any
	// Unwrap returns the framework's own request or context.
	Unwrap() any
}

// A LoggingRequest is a Request that has a logger. [IP] and [Peer] log their warnings to it. The requests
// of all adapters are LoggingRequests, with the limiter's logger; outside of a middleware they have the default
// logger. For other Requests, no warning is logged.
type LoggingRequest interface {
	Request
	// Logger returns where to log, or nil.
	Logger() *slog.Logger
}
