package echolimit

import (
	"context"
	"log/slog"

	"github.com/labstack/echo/v4"

	"github.com/redislimit/redislimit/core/guard"
)

// A request is what key functions see of an echo.Context. It also holds a guard.Seen,
// so that both are one allocation.
type request struct {
	c    echo.Context
	seen *guard.Seen // of all middlewares of the request
	made guard.Seen  // what seen points to in the outermost one
}

func (q *request) Context() context.Context          { return q.c.Request().Context() }
func (q *request) Method() string                    { return q.c.Request().Method }
func (q *request) Path() string                      { return q.c.Request().URL.Path }
func (q *request) Route() string                     { return q.c.Path() }
func (q *request) RemoteAddr() string                { return q.c.Request().RemoteAddr } // never RealIP, which trusts headers
func (q *request) Header(name string) string         { return q.c.Request().Header.Get(name) }
func (q *request) HeaderValues(name string) []string { return q.c.Request().Header.Values(name) }
func (q *request) Query(name string) string          { return q.c.QueryParam(name) }
func (q *request) Unwrap() any                       { return q.c }
func (q *request) Logger() *slog.Logger              { return q.seen.Logger() }

func (q *request) Cookie(name string) string {
	c, err := q.c.Cookie(name)
	if err != nil {
		return ""
	}
	return c.Value
}

func (q *request) Value(key any) any {
	if name, ok := key.(string); ok {
		if value := q.c.Get(name); value != nil {
			return value
		}
	}
	return q.c.Request().Context().Value(key)
}

// seenKey is the key under which an echo.Context has its guard.Seen.
const seenKey = "github.com/redislimit/redislimit"

// seenIn returns the guard.Seen of c, or nil before the first middleware.
func seenIn(c echo.Context) *guard.Seen {
	seen, _ := c.Get(seenKey).(*guard.Seen)
	return seen
}

// newRequest returns the request of c, with the guard.Seen that c has or a new one.
func newRequest(c echo.Context) *request {
	q := &request{c: c, seen: seenIn(c)}
	if q.seen == nil {
		q.seen = &q.made
		c.Set(seenKey, q.seen)
	}
	return q
}
