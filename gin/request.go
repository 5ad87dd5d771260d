package ginlimit

import (
	"context"
	"log/slog"

	"github.com/gin-gonic/gin"

	"github.com/redislimit/redislimit/core/guard"
)

// A request is what key functions see of a *gin.Context. It is one pointer, so
// that it costs no allocation.
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
func (q request) Logger() *slog.Logger              { return seenIn(q.c).Logger() }

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

// anyKeys is a *gin.Context since Gin 1.11. Before that its keys are strings.
type anyKeys interface {
	Get(key any) (value any, exists bool)
}

// seenKey is the key under which a *gin.Context has its guard.Seen.
const seenKey = "github.com/redislimit/redislimit"

// seenIn returns the guard.Seen of c, or nil before the first middleware.
func seenIn(c *gin.Context) *guard.Seen {
	value, _ := c.Get(seenKey)
	seen, _ := value.(*guard.Seen)
	return seen
}

// withSeen returns the guard.Seen of c. If c has none, it gets one.
func withSeen(c *gin.Context) *guard.Seen {
	seen := seenIn(c)
	if seen == nil {
		seen = &guard.Seen{}
		c.Set(seenKey, seen)
	}
	return seen
}
