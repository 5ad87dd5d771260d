package fiberlimit

import (
	"context"
	"log/slog"
	"net"
	"reflect"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/redislimit/redislimit/core/guard/adapter"
)

// A request presents a *fiber.Ctx to key functions. Its strings are copies: a key outlives the handler,
// after which Fiber reuses the memory of its own strings.
type request struct{ c *fiber.Ctx }

func (q request) Context() context.Context { return q.c.UserContext() }
func (q request) Method() string           { return strings.Clone(q.c.Method()) }
func (q request) Path() string             { return strings.Clone(q.c.Path()) }
func (q request) Query(name string) string { return strings.Clone(q.c.Query(name)) }
func (q request) Unwrap() any              { return q.c }
func (q request) Logger() *slog.Logger     { return stateIn(q.c).Logger() }

// RemoteAddr is never c.IP, which may trust headers.
func (q request) RemoteAddr() string {
	addr := q.c.Context().RemoteAddr()
	if tcp, ok := addr.(*net.TCPAddr); ok {
		return tcp.AddrPort().String() // the same, in fewer allocations
	}
	return addr.String()
}

func (q request) Header(name string) string {
	lines, _ := q.lines(name)
	if len(lines) == 0 {
		return ""
	}
	return string(lines[0])
}

func (q request) HeaderValues(name string) []string {
	lines, _ := q.lines(name)
	values := make([]string, len(lines))
	for i, line := range lines {
		values[i] = string(line)
	}
	return values
}

func (q request) Cookie(name string) string {
	lines, chunked := q.lines(fiber.HeaderCookie)
	switch {
	case chunked && cookieIn(adapter.HeaderLines(q.c.Request().Header.RawHeaders(), fiber.HeaderCookie), name) == "":
		return "" // it may be in the trailer
	case chunked || len(lines) > 1:
		return cookieIn(lines, name)
	}
	return strings.Clone(q.c.Cookies(name))
}

func (q request) Value(key any) any {
	switch value := q.c.Locals(key).(type) {
	case nil:
		return q.c.UserContext().Value(key)
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

// useField is the index of the field that is true for a route registered by Use, or nil if this version of
// Fiber does not have the field.
var useField = func() []int {
	field, ok := reflect.TypeFor[fiber.Route]().FieldByName("use")
	if !ok || field.Type.Kind() != reflect.Bool {
		return nil
	}
	return field.Index
}()

// A header is the response's headers.
type header struct{ c *fiber.Ctx }

func (h header) Get(name string) string { return h.c.GetRespHeader(name) }
func (h header) Set(name, value string) { h.c.Set(name, value) }
func (h header) Del(name string)        { h.c.Response().Header.Del(name) }

// SetBytes makes header an adapter.BytesHeader: fasthttp copies what it is given.
func (h header) SetBytes(name string, value []byte) { h.c.Response().Header.SetBytesV(name, value) }

// stateKey is the key under which a *fiber.Ctx has its adapter.RequestState.
type stateKey struct{}

// stateIn returns the adapter.RequestState of c, or nil before the first middleware. It also returns nil
// after Fiber has taken c back, because a panic in the writer of a streamed body would end the process.
func stateIn(c *fiber.Ctx) *adapter.RequestState {
	if c.Context() == nil {
		return nil
	}
	state, _ := c.Locals(stateKey{}).(*adapter.RequestState)
	return state
}

// withState returns the adapter.RequestState of c. If c has none, it gets one.
func withState(c *fiber.Ctx) *adapter.RequestState {
	state := stateIn(c)
	if state == nil {
		state = &adapter.RequestState{}
		c.Locals(stateKey{}, state)
	}
	return state
}
