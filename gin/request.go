package ginlimit

import (
	"context"
	"log/slog"

	"github.com/gin-gonic/gin"

	"github.com/redislimit/redislimit/core/guard/adapter"
)

// A request presents a *gin.Context to key functions. It is a single pointer, so that it needs no
// allocation.
type request struct{ c *gin.Context }

func (q request) Context() context.Context          { return q.c.Request.Context() }
func (q request) Method() string                    { return q.c.Request.Method }
func (q request) Path() string                      { return q.c.Request.URL.Path }
func (q request) Route() string                     { return q.c.FullPath() }
func (q request) RemoteAddr() string                { return q.c.Request.RemoteAddr } // never ClientIP, which trusts headers
func (q request) Header(name string) string         { return q.c.Request.Header.Get(name) }
func (q request) HeaderValues(name string) []string { return q.c.Request.Header.Values(name) }
func (q request) Query(name string) string          { return q.c.Query(name) }
func (q request) Unwrap() any                       { return q.c }
func (q request) Logger() *slog.Logger              { return stateIn(q.c).Logger() }

func (q request) Cookie(name string) string {
	c, err := q.c.Request.Cookie(name)
	if err != nil {
		return ""
	}
	return c.Value
}

func (q request) Value(key any) any {
	if name, ok := key.(string); ok {
		if value, ok := q.c.Get(name); ok {
			return value
		}
	} else if c, ok := any(q.c).(anyKeys); ok {
		if value, ok := c.Get(key); ok {
			return value
		}
	}
	return q.c.Request.Context().Value(key)
}

// anyKeys is implemented by *gin.Context since Gin 1.11. In earlier versions, the keys of a *gin.Context are
// strings.
type anyKeys interface {
	Get(key any) (value any, exists bool)
}

// stateKey is the key under which a *gin.Context has its adapter.RequestState.
const stateKey = "github.com/redislimit/redislimit"

// stateIn returns the adapter.RequestState of c, or nil before the first middleware.
func stateIn(c *gin.Context) *adapter.RequestState {
	value, _ := c.Get(stateKey)
	state, _ := value.(*adapter.RequestState)
	return state
}

// stateKeyOf is the key of the state in the context.Context of a request that holds slots. Gin's HandleContext
// restarts the routing of a request, and clears the keys of its *gin.Context. The state must survive this, so
// that the request does not take another slot.
type stateKeyOf struct{}

// withState returns the adapter.RequestState of c. If c has none, it gets one.
func withState(c *gin.Context) *adapter.RequestState {
	state := stateIn(c)
	if state == nil {
		if state, _ = c.Request.Context().Value(stateKeyOf{}).(*adapter.RequestState); state == nil {
			state = &adapter.RequestState{}
		}
		c.Set(stateKey, state)
	}
	return state
}
