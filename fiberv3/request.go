package fiberlimit

import (
	"context"
	"log/slog"
	"net"
	"reflect"
	"strings"

	"github.com/gofiber/fiber/v3"

	"github.com/redislimit/redislimit/core/guard/adapter"
)

// A request presents a fiber.Ctx to key functions. Its strings are copies: a key outlives the handler,
// after which Fiber reuses the memory of its own strings.
type request struct{ c fiber.Ctx }

func (q request) Context() context.Context { return q.c.Context() }
func (q request) Method() string           { return q.c.Method() }
func (q request) Path() string             { return strings.Clone(q.c.Path()) }
func (q request) Query(name string) string { return strings.Clone(q.c.Query(name)) }
func (q request) Unwrap() any              { return q.c }
func (q request) Logger() *slog.Logger     { return stateIn(q.c).Logger() }

// RemoteAddr is never c.IP, which may trust headers.
func (q request) RemoteAddr() string {
	addr := q.c.RequestCtx().RemoteAddr()
	if tcp, ok := addr.(*net.TCPAddr); ok {
		return tcp.AddrPort().String() // the same, in fewer allocations
	}
	return addr.String()
}

func (q request) Header(name string) string {
	lines := q.lines(name)
	if len(lines) == 0 {
		return ""
	}
	return string(lines[0])
}

func (q request) HeaderValues(name string) []string {
	lines := q.lines(name)
	values := make([]string, len(lines))
	for i, line := range lines {
		values[i] = string(line)
	}
	return values
}

// Cookie never returns a cookie from a trailer, because fasthttp refuses a trailer with cookies.
func (q request) Cookie(name string) string {
	if lines := q.lines(fiber.HeaderCookie); len(lines) > 1 {
		return cookieIn(lines, name)
	}
	return strings.Clone(q.c.Cookies(name))
}

func (q request) Value(key any) any {
	switch value := q.c.Locals(key).(type) {
	case nil:
		return q.c.Context().Value(key)
	case string:
		return strings.Clone(value) // Fiber may reuse its memory
	default:
		return value
	}
}

// Route returns the pattern of the route that the middleware is mounted on. In Use, Fiber has not
// matched the route yet and returns "/" for every request. Only a field that Fiber does not export
// distinguishes the two. Without that field, in a later Fiber, Route returns "", so that no two
// routes are taken for one.
func (q request) Route() string {
	route := q.c.Route()
	if useField == nil || reflect.ValueOf(route).Elem().FieldByIndex(useField).Bool() {
		return ""
	}
	return route.Path
}

// refused reports whether fasthttp refused the request. Fiber passes such a request to the handlers
// that are mounted by Use, mostly without its headers, so the key would be that of the proxy. Only a
// field that Fiber does not export says that a request was refused. If the field is not found, as
// perhaps in a later Fiber or in an application's own context, refused returns false, so that no limit
// is skipped.
func refused(c fiber.Ctx) bool {
	ctx, want := reflect.Indirect(reflect.ValueOf(c)), reflect.TypeFor[fiber.DefaultCtx]()
	if ctx.Type() != want {
		ctx = reflect.Indirect(ctx.FieldByName("DefaultCtx")) // embedded in an application's own
	}
	return refusedField != nil && ctx.IsValid() && ctx.Type() == want && ctx.FieldByIndex(refusedField).Bool()
}

var (
	useField     = boolField[fiber.Route]("use")                         // of a route registered by Use
	refusedField = boolField[fiber.DefaultCtx]("shouldSkipNonUseRoutes") // of a request that fasthttp refused
)

// boolField returns the index of a field of T that Fiber does not export, or nil if this version of Fiber
// does not have the field.
func boolField[T any](name string) []int {
	field, ok := reflect.TypeFor[T]().FieldByName(name)
	if !ok || field.Type.Kind() != reflect.Bool {
		return nil
	}
	return field.Index
}

// A header is the headers of the response to a request, with which it shares memory.
type header request

func (h *header) Get(name string) string { return h.c.GetRespHeader(name) }
func (h *header) Set(name, value string) { h.c.Set(name, value) }
func (h *header) Del(name string)        { h.c.Response().Header.Del(name) }

// SetBytes makes header an adapter.BytesHeader: fasthttp copies what it is given.
func (h *header) SetBytes(name string, value []byte) { h.c.Response().Header.SetBytesV(name, value) }

// stateKey is the key under which a fiber.Ctx has its adapter.RequestState.
type stateKey struct{}

// stateIn returns the adapter.RequestState of c, or nil before the first middleware.
func stateIn(c fiber.Ctx) *adapter.RequestState {
	state, _ := c.Locals(stateKey{}).(*adapter.RequestState)
	return state
}

// withState returns the adapter.RequestState of c. If c has none, it gets one.
func withState(c fiber.Ctx) *adapter.RequestState {
	state := stateIn(c)
	if state == nil {
		state = &adapter.RequestState{}
		c.Locals(stateKey{}, state)
	}
	return state
}
