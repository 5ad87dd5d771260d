package fiberlimit

import (
	"context"
	"net"
	"reflect"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/redislimit/redislimit/core/guard"
)

// A request is what key functions see of a *fiber.Ctx. Fiber uses its strings
// again after the handler, and keys outlive it: each is copied.
type request struct{ c *fiber.Ctx }

func (q request) Context() context.Context  { return q.c.UserContext() }
func (q request) Method() string            { return strings.Clone(q.c.Method()) }
func (q request) Path() string              { return strings.Clone(q.c.Path()) }
func (q request) Header(name string) string { return strings.Clone(q.c.Get(name)) }
func (q request) Query(name string) string  { return strings.Clone(q.c.Query(name)) }
func (q request) Cookie(name string) string { return strings.Clone(q.c.Cookies(name)) }
func (q request) Unwrap() any               { return q.c }

// RemoteAddr is never c.IP, which may believe headers.
func (q request) RemoteAddr() string {
	addr := q.c.Context().RemoteAddr()
	if tcp, ok := addr.(*net.TCPAddr); ok {
		return tcp.AddrPort().String() // the same, in fewer allocations
	}
	return addr.String()
}

func (q request) HeaderValues(name string) []string {
	lines := q.c.Request().Header.PeekAll(name)
	values := make([]string, len(lines))
	for i, line := range lines {
		values[i] = string(line)
	}
	return values
}

func (q request) Value(key any) any {
	switch value := q.c.Locals(key).(type) {
	case nil:
		return q.c.UserContext().Value(key)
	case string:
		return strings.Clone(value) // it may be one of Fiber's
	default:
		return value
	}
}

// Route returns the pattern of the route that the middleware is mounted on. In
// Use, Fiber does not know yet which route will match and answers "/" for all.
// Only a field that it does not export tells the two apart; should a later Fiber
// lack it, no route is known at all, rather than one for all.
func (q request) Route() string {
	route := q.c.Route()
	use := reflect.ValueOf(route).Elem().FieldByName("use")
	if !use.IsValid() || use.Kind() != reflect.Bool || use.Bool() {
		return ""
	}
	return route.Path
}

// A header is the response's headers.
type header struct{ c *fiber.Ctx }

func (h header) Get(name string) string { return h.c.GetRespHeader(name) }
func (h header) Set(name, value string) { h.c.Set(name, value) }

// SetBytes spares the guard the making of strings, which fasthttp would copy.
func (h header) SetBytes(name string, value []byte) { h.c.Response().Header.SetBytesV(name, value) }

// seenKey is where a *fiber.Ctx has what was decided.
type seenKey struct{}

// remember returns the place for decisions about the request of c.
func remember(c *fiber.Ctx) *guard.Seen {
	seen, ok := c.Locals(seenKey{}).(*guard.Seen)
	if !ok {
		seen = &guard.Seen{}
		c.Locals(seenKey{}, seen)
	}
	return seen
}
