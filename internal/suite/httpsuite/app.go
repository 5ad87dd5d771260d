package httpsuite

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/keyfunc"
)

// An Adapter is one framework: how it serves an [App], and how it differs from other frameworks.
type Adapter struct {
	// Name is the framework's name.
	Name string
	// Start serves app until the Server is closed.
	Start func(t *testing.T, app App) *Server
	// Lacks has the reason for each ability, or mount point, that the framework does not have.
	Lacks map[Ability]string
	// Problem says that the middleware itself answers, with problem+json. Otherwise it returns the framework's error.
	Problem bool
	// Patterns is the pattern of the route /g/users/{id} that a middleware at a mount point can see; "" if it sees none.
	Patterns map[MountPoint]string
}

// An Ability is something that not all frameworks can do.
type Ability string

// The abilities.
const (
	HTTP2          Ability = "HTTP/2"
	Gone           Ability = "noticing that the client left"
	ResponseWriter Ability = "an http.ResponseWriter"
	Interim        Ability = "interim responses (1xx)"
	Begins         Ability = "a response that begins before its handler has returned"
)

// A MountPoint is where in an [App] a middleware is mounted.
type MountPoint string

// The mount points. A framework that lacks one has the reason in [Adapter.Lacks].
const (
	BeforeRouting MountPoint = "Pre"
	Everywhere    MountPoint = "Use"
	InGroup       MountPoint = "Group"
	OnRoute       MountPoint = "Route"
)

// An App is the application that a case serves, in terms that all frameworks have. Middleware that is mounted before
// routing comes first. Then follows middleware for all routes, for a group, and for a route, each in the given order.
type App struct {
	Pre    []Mount
	Use    []Mount
	Groups []Group
	Routes []Route
	// Recover recovers panics outside of everything else, and answers with 500.
	Recover bool
	// Renders makes the app render errors itself, by [Render], in the framework's own way.
	Renders bool
	// HTTP2 serves HTTP/2 over TLS.
	HTTP2 bool
	// WriteTimeout is the server's WriteTimeout.
	WriteTimeout time.Duration
	// Base is the server's BaseContext, if it is not nil and the framework has one.
	Base context.Context
}

// A Group is a number of routes with a common prefix and common mounts.
type Group struct {
	Prefix string
	Use    []Mount
	Routes []Route
}

// A Route has a path in the form /users/{id} and answers every method.
type Route struct {
	Path    string
	Use     []Mount
	Handler Handler
}

// A Mount is a middleware: [Auth], [AddHeader], [Log], [CORS], [Compress] or [Limit].
type Mount interface{ mount() }

// Auth is authentication that trusts UserHeader. It stores the user, if there is one, under UserKey and TypedUserKey, where
// the framework's own middlewares would.
type Auth struct{}

// AddHeader sets a header of the response, as a CORS middleware does.
type AddHeader struct{ Name, Value string }

// Log reports the status of each response, as a log of requests shows it.
type Log struct{ Saw func(status int) }

// CORS answers preflights, and lets scripts of all origins read responses. It is the framework's own middleware, or one
// that works in the same way.
type CORS struct{}

// Compress compresses responses. It is the framework's own middleware, or one that works in the same way.
type Compress struct{}

// Limit is the adapter's Middleware.
type Limit struct {
	Limiter *core.Limiter
	Key     keyfunc.Func
	Options []guard.Option
	// NativeKey makes the adapter's Key return the key; see [KeyOf]. If Key is set as well, the native function calls it
	// with the adapter's Request.
	NativeKey bool
	// OnDenied and OnError are native handlers, if not nil.
	OnDenied, OnError *Handler
}

func (Auth) mount()      {}
func (AddHeader) mount() {}
func (Log) mount()       {}
func (CORS) mount()      {}
func (Compress) mount()  {}
func (Limit) mount()     {}

// UserHeader is the header with the user for [Auth]. KeyHeader is the header with the key for a native key function.
const (
	UserHeader = "Demo-User"
	KeyHeader  = "Demo-Key"
)

// UserKey is a string, because some frameworks accept no other key.
var UserKey any = "user"

// TypedUserKey is a key of a context as Go programs use it. If a framework accepts only strings, the value is in the
// request's context.
var TypedUserKey any = typedKey{}

type typedKey struct{}

// KeyOf returns the key function of m. A native one is made by the adapter's Key, and reads the KeyHeader of the
// framework's own request.
func KeyOf[C any](
	m Limit, adapted func(func(C) (string, error)) keyfunc.Func, request func(C) keyfunc.Request, header func(C) string,
) keyfunc.Func {
	switch {
	case !m.NativeKey:
		return m.Key
	case m.Key == nil:
		return adapted(func(c C) (string, error) { return nativeKeyOf(header(c)) })
	}
	return adapted(func(c C) (string, error) {
		prefix, err := nativeKeyOf(header(c))
		if err != nil {
			return "", err
		}
		key, err := m.Key(request(c))
		return prefix + "," + key, err
	})
}

func nativeKeyOf(header string) (string, error) {
	switch header {
	case "":
		return "", keyfunc.ErrNoKey
	case "broken":
		return "", errors.New("broken: secret detail")
	}
	return header, nil
}

// Options returns all options of m, including the framework's handlers.
func Options[H any](m Limit, native func(Handler) H, onDenied, onError func(H) guard.AnswerOption) []guard.Option {
	options := append([]guard.Option(nil), m.Options...)
	if m.OnDenied != nil {
		options = append(options, onDenied(native(*m.OnDenied)))
	}
	if m.OnError != nil {
		options = append(options, onError(native(*m.OnError)))
	}
	return options
}

// A Server is an [App] that is being served.
type Server struct {
	URL string
	// Transport trusts the server and keeps connections alive.
	Transport *http.Transport
	// Close waits until the requests in flight have ended.
	Close func()
}
