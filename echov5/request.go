package echolimit

import (
	"context"
	"log/slog"

	"github.com/labstack/echo/v5"

	"github.com/redislimit/redislimit/core/guard/adapter"
)

// A request presents an *echo.Context to key functions. It has room for an adapter.RequestState, so that the
// two take one allocation.
type request struct {
	c     *echo.Context
	state *adapter.RequestState // shared by all middlewares of the request
	made  adapter.RequestState  // what state points to in the outermost middleware
}

func (q *request) Context() context.Context          { return q.c.Request().Context() }
func (q *request) Method() string                    { return q.c.Request().Method }
func (q *request) Path() string                      { return q.c.Request().URL.Path }
func (q *request) Route() string                     { return q.c.Path() }
func (q *request) RemoteAddr() string                { return q.c.Request().RemoteAddr } // never RealIP, which may trust headers
func (q *request) Header(name string) string         { return q.c.Request().Header.Get(name) }
func (q *request) HeaderValues(name string) []string { return q.c.Request().Header.Values(name) }
func (q *request) Query(name string) string          { return q.c.QueryParam(name) }
func (q *request) Unwrap() any                       { return q.c }
func (q *request) Logger() *slog.Logger              { return q.state.Logger() }

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

// stateKey is the key under which an *echo.Context has its adapter.RequestState.
const stateKey = "github.com/redislimit/redislimit"

// stateIn returns the adapter.RequestState of c, or nil before the first middleware.
func stateIn(c *echo.Context) *adapter.RequestState {
	state, _ := c.Get(stateKey).(*adapter.RequestState)
	return state
}

// newRequest returns the request of c, with the adapter.RequestState that c has or a new one.
func newRequest(c *echo.Context) *request {
	q := &request{c: c, state: stateIn(c)}
	if q.state == nil {
		q.state = &q.made
		c.Set(stateKey, q.state)
	}
	return q
}
