package guard

import (
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/keyfunc"
)

// An Adapter makes the Guards, options and key functions of one framework's adapter.
// N is the framework's own request or context and H its handler. The value is the
// name of the adapter's package, for error messages:
//
//	const adapter = guard.Adapter[*gin.Context, gin.HandlerFunc]("ginlimit")
//
// It is for authors of adapters. The Middleware of their package calls New; its
// OnDenied, OnError and Key call the methods of these names.
type Adapter[N, H any] string

// New returns the Guard of a middleware that limits by key, and the handlers that
// are among opts. It panics if lim, key or an option is nil, or if an option is of
// another adapter: a program with such a mistake must not run with a route unlimited.
func (a Adapter[N, H]) New(lim *core.Limiter, key keyfunc.Func, opts ...Option) (*Guard, Handlers[H]) {
	switch {
	case lim == nil:
		panic("guard: the limiter is nil: make one with core.New")
	case key == nil:
		panic("guard: the key function is nil: choose one, such as keyfunc.IP()")
	}
	g := &Guard{limiter: lim, key: key, peer: keyfunc.Peer(), headers: headers{sets: XRateLimit}}
	for _, opt := range opts {
		if opt == nil {
			panic("guard: a nil Option: leave it out")
		}
		opt(g)
	}
	a.mustBeOwn("OnDenied", g.denied)
	a.mustBeOwn("OnError", g.failed)
	return g, Handlers[H]{g.denied, g.failed}
}

func (a Adapter[N, H]) mustBeOwn(option string, handler any) {
	if _, ok := handler.(H); !ok && handler != nil {
		panic(fmt.Sprintf("%s: %s has a %T, want a %v: use %s.%s", a, option, handler, reflect.TypeFor[H](), a, option))
	}
}

// OnDenied returns the option OnDenied of the adapter.
func (a Adapter[N, H]) OnDenied(h H) Option {
	mustFunc(isNil(h), "OnDenied", "answers denied requests")
	return func(g *Guard) { g.denied = h }
}

// OnError returns the option OnError of the adapter.
func (a Adapter[N, H]) OnError(h H) Option {
	mustFunc(isNil(h), "OnError", "answers requests without a decision")
	return func(g *Guard) { g.failed = h }
}

// Key returns the key function Key of the adapter. Under the middleware of another
// adapter it panics at the first request.
func (a Adapter[N, H]) Key(f func(N) (string, error)) keyfunc.Func {
	mustFunc(f == nil, "Key", "takes the key from a request")
	return func(r keyfunc.Request) (string, error) {
		native, ok := r.Unwrap().(N)
		if !ok {
			panic(fmt.Sprintf("%s: Key wants a %v, but the requests of this middleware are %T over %T: use the Key of the same adapter",
				a, reflect.TypeFor[N](), r, r.Unwrap()))
		}
		return f(native)
	}
}

func isNil(handler any) bool {
	v := reflect.ValueOf(handler)
	return handler == nil || (v.Kind() == reflect.Func || v.Kind() == reflect.Pointer) && v.IsNil()
}

// Handlers are those given to OnDenied and OnError, if any.
type Handlers[H any] struct{ denied, failed any }

// For returns the handler that answers a request with the Verdict v. It reports
// false if there is none: the adapter then answers itself.
func (h Handlers[H]) For(v Verdict) (H, bool) {
	chosen := h.failed
	if v.Status == http.StatusTooManyRequests {
		chosen = h.denied
	}
	handler, ok := chosen.(H)
	return handler, ok
}

// A Header sets the headers of a response. http.Header implements it.
type Header interface {
	Get(name string) string
	Set(name, value string)
	Del(name string)
}

// A BytesHeader is a Header that copies the values that it is given, as that of
// fasthttp does. A Guard then allocates no strings for them.
type BytesHeader interface {
	Header
	SetBytes(name string, value []byte)
}

// Seen is what the middlewares of one request have decided so far. An adapter
// keeps one with each request, for handlers and for stacked middlewares.
type Seen struct {
	limiter atomic.Pointer[core.Limiter] // of the middleware that ran last
	cost    atomic.Pointer[int64]        // that SetCost was last given, or nil

	// Middlewares of one request can run at the same time: one inside of
	// http.TimeoutHandler goes on after the timeout, and a handler may serve several
	// requests in one.
	mu         sync.Mutex
	result     core.Result // the tightest
	xRateLimit shown       // what is in the headers of this set
	ietf       shown       // and of this
	values     [3]string   // the X-RateLimit headers that the first middleware set
	text       [64]byte    // in which they are formatted
}

// Result returns the tightest decision. It reports false if there is none.
func (s *Seen) Result() (core.Result, bool) {
	if s == nil {
		return core.Result{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.result, s.result.Source != core.SourceNone
}

// Logger returns the logger of the limiter that decides now, or nil if there is none.
// The method Logger of an adapter's request returns it; see [keyfunc.LoggingRequest].
func (s *Seen) Logger() *slog.Logger {
	if s == nil || s.limiter.Load() == nil {
		return nil
	}
	lim := s.limiter.Load()
	return lim.Logger().With("limiter", lim.Name())
}

// A shown is the Result that the headers have, as far as Tighter compares it. With
// two whole Results in each Seen, a request took 10 % longer.
type shown struct {
	allowed                bool
	source                 core.Source
	limit, remaining       int64
	retryAfter, resetAfter time.Duration
	window                 time.Duration
}

// replace reports whether res is tighter than s, and records it if so.
func (s *shown) replace(res *core.Result) bool {
	if s.source != core.SourceNone && !res.Tighter(core.Result{
		Allowed: s.allowed, Source: s.source, Limit: s.limit, Remaining: s.remaining, RetryAfter: s.retryAfter, ResetAfter: s.resetAfter,
		Window: s.window,
	}) {
		return false
	}
	*s = shown{res.Allowed, res.Source, res.Limit, res.Remaining, res.RetryAfter, res.ResetAfter, res.Window}
	return true
}
