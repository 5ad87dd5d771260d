// Package adapter is for authors of adapters. It contains the code that all adapters share: what a
// middleware does with a request, step by step.
//
// An [Adapter] makes the [Guard] of a middleware. The middleware passes each request to
// [Guard.Check] and follows the [Verdict] that Check returns. Check takes the key from the request,
// lets the limiter decide, sets the headers, and returns when the request has waited as long as it
// must. If [Guard.NeedsFinish] returns true, the middleware calls [Guard.Finish] when the response has
// ended.
//
// If a handler calls a limiter itself, it passes the decision to an [Answerer], and the adapter
// follows the Verdict of the Answerer in the same way.
//
//	adapter.go        Adapter: the options, key functions and Guards of one framework
//	guard.go          Check: the decision
//	answer.go         how a decision is answered; Answerer: for handlers that call a limiter themselves
//	also_limit.go     limiters that decide together
//	finish.go         Finish: charges and frees when the response ends
//	state.go          RequestState: shared by the middlewares of one request
//	header.go, ietf.go, lines.go   headers
package adapter

import (
	"context"
	"fmt"
	"net/http"
	"reflect"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/core/guard/internal/settings"
	"github.com/redislimit/redislimit/internal/inside"
	"github.com/redislimit/redislimit/keyfunc"
)

// An Adapter makes the Guards, options and key functions of the adapter for one framework. N is what the
// application's key functions get, usually the framework's own request or context. H is the type of the
// functions that are given to OnDenied and OnError, usually the type of the framework's handlers. The
// value is the name of the adapter's package, which appears in error messages:
//
//	const framework = adapter.Adapter[*gin.Context, gin.HandlerFunc]("ginlimit")
//
// In the adapter's package, the function Middleware (in gRPC, Unary and Stream) calls New. The functions
// NewAnswerer, OnDenied and OnError call the methods with these names. Key calls the method Key or
// ContextKey.
type Adapter[N, H any] string

// maxWaiting is the default of [guard.MaxWaiting].
const maxWaiting = 1000

// New returns the Guard of a middleware that limits requests by key, and the handlers that opts
// contain. It panics if lim, key or an option is nil, or if an option does not fit the limiter, another
// option or this adapter. (A handler fits if it has the type H, even if another adapter has made the
// option.) A program with such a mistake must not start, because a route might be unlimited.
func (a Adapter[N, H]) New(lim *core.Limiter, key keyfunc.Func, opts ...guard.Option) (*Guard, Handlers[H]) {
	settings.MustLimit(lim, key)
	s := settings.Settings{Headers: defaultHeaders(), MaxWaiting: maxWaiting}
	settings.Apply(&s, opts)
	handlers := a.check(&s)
	_, queue, units := inside.Core.NeedsEnd(lim)
	alone := s.LimiterFor == nil && s.AlsoLimits == nil
	switch {
	case queue && s.WaitUpTo > 0:
		panic(fmt.Sprintf("guard: WaitUpTo: limiter %q has a LeakyBucket, whose own queue makes requests wait: bound their wait by core.Burst", lim.Name()))
	case !units && s.CostAfter && alone:
		panic(fmt.Sprintf("guard: CostAfter: no limit of limiter %q charges another cost later: InFlight has slots, "+
			"and a LeakyBucket keeps its charge", lim.Name()))
	case !units && !queue && s.CountIf != nil && alone:
		panic(fmt.Sprintf("guard: CountIf: limiter %q has InFlight alone, whose slots are freed however a request ends: "+
			"give it a limit to count by", lim.Name()))
	}
	if s.Codes != "" && s.Codes != string(a) {
		panic(fmt.Sprintf("%s: CountIf belongs to %s: use guard.CountIf", a, s.Codes))
	}
	g := &Guard{limiter: lim, key: key, peer: keyfunc.Peer(), settings: s}
	g.addAlsoLimits()
	return g, handlers
}

// NewAnswerer returns an Answerer, and the handlers that opts contain. It panics if an option is nil, or
// if an option does not fit another option or this adapter, as in New.
func (a Adapter[N, H]) NewAnswerer(opts ...guard.AnswerOption) (*Answerer, Handlers[H]) {
	s := settings.Settings{Headers: defaultHeaders()}
	settings.Apply(&s, opts)
	return &Answerer{headers: headers(s.Headers)}, a.check(&s)
}

// check returns the handlers that the options contain. It panics if the options do not fit together,
// as Settings.Check says, or if a handler does not have the type H.
func (a Adapter[N, H]) check(s *settings.Settings) Handlers[H] {
	s.Check(xRateLimit)
	a.mustBeOwn("OnDenied", s.OnDenied)
	a.mustBeOwn("OnError", s.OnError)
	return Handlers[H]{s.OnDenied, s.OnError}
}

// mustBeOwn panics if handler, which was given to option, is neither nil nor of the type H.
func (a Adapter[N, H]) mustBeOwn(option string, handler any) {
	if _, ok := handler.(H); !ok && handler != nil {
		panic(fmt.Sprintf("%s: %s has a %T, want a %v: use %s.%s", a, option, handler, reflect.TypeFor[H](), a, option))
	}
}

// OnDenied returns the adapter's option OnDenied, whose handler answers denied requests. It panics
// if h is nil.
func (a Adapter[N, H]) OnDenied(h H) guard.AnswerOption {
	settings.MustFunc(isNil(h), "OnDenied", "answers denied requests")
	return settings.NewAnswerOption("OnDenied", func(s *settings.Settings) { s.OnDenied = h })
}

// OnError returns the adapter's option OnError. Its handler answers the requests that are refused for
// any reason other than a denial. OnError panics if h is nil.
func (a Adapter[N, H]) OnError(h H) guard.AnswerOption {
	settings.MustFunc(isNil(h), "OnError", "answers requests without a decision")
	return settings.NewAnswerOption("OnError", func(s *settings.Settings) { s.OnError = h })
}

// CountIf returns the option CountIf of an adapter whose requests end with codes of their own, as
// in gRPC. count receives [Verdict.Code], while the function that is given to [guard.CountIf] receives
// the HTTP status. CountIf panics if count is nil.
func (a Adapter[N, H]) CountIf(count func(code int) bool) guard.Option {
	settings.MustFunc(count == nil, "CountIf", "reports which code counts")
	return settings.NewOption("CountIf", func(s *settings.Settings) {
		s.CountIf, s.Codes = func(_, code int) bool { return count(code) }, string(a)
	})
}

// Key returns a key function that calls f with the framework's own request. The function Key of the
// adapter's package returns this key function, or one that calls it. The key function panics if the
// framework's own request does not have the type N. Key panics if f is nil.
func (a Adapter[N, H]) Key(f func(N) (string, error)) keyfunc.Func {
	settings.MustFunc(f == nil, "Key", "takes the key from a request")
	return func(r keyfunc.Request) (string, error) { return f(a.native(r)) }
}

// ContextKey is like Key, for a framework whose handlers take a context beside the request, such as
// Hertz and gRPC. The key function calls f with the Context of the request, too.
func (a Adapter[N, H]) ContextKey(f func(context.Context, N) (string, error)) keyfunc.Func {
	settings.MustFunc(f == nil, "Key", "takes the key from a request")
	return func(r keyfunc.Request) (string, error) { return f(r.Context(), a.native(r)) }
}

// native returns the framework's own request. It panics if this request does not have the type N: r then
// comes from another adapter.
func (a Adapter[N, H]) native(r keyfunc.Request) N {
	native, ok := r.Unwrap().(N)
	if !ok {
		panic(fmt.Sprintf("%s: Key wants a %v, but the requests of this middleware are %T over %T: use the Key of the same adapter",
			a, reflect.TypeFor[N](), r, r.Unwrap()))
	}
	return native
}

// isNil reports whether handler is nil, or an interface that holds a nil function or pointer.
func isNil(handler any) bool {
	v := reflect.ValueOf(handler)
	return handler == nil || (v.Kind() == reflect.Func || v.Kind() == reflect.Pointer) && v.IsNil()
}

// Handlers contains the handlers that were given to OnDenied and OnError, if any.
type Handlers[H any] struct{ denied, failed any }

// For returns the handler that answers a request with the Verdict v: for a denial, the handler of
// OnDenied, and otherwise that of OnError. It returns false if the user has given no such handler;
// the adapter then gives its default answer.
func (h Handlers[H]) For(v Verdict) (H, bool) {
	chosen := h.failed
	if v.Status == http.StatusTooManyRequests {
		chosen = h.denied
	}
	handler, ok := chosen.(H)
	return handler, ok
}

// A Header changes the headers of a response. [http.Header] implements it.
type Header interface {
	Get(name string) string
	Set(name, value string)
	Del(name string)
}

// A BytesHeader is a Header that stores a copy of each value, as the headers of fasthttp do. With it,
// the Guard need not allocate a string for each value.
type BytesHeader interface {
	Header
	SetBytes(name string, value []byte)
}
