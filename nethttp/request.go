package httplimit

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/redislimit/redislimit/core/guard"
)

// A request is what key functions see of an *http.Request. It is one pointer, so
// that it costs no allocation.
type request struct{ r *http.Request }

func (q request) Context() context.Context          { return q.r.Context() }
func (q request) Method() string                    { return q.r.Method }
func (q request) Path() string                      { return q.r.URL.Path }
func (q request) Route() string                     { return q.r.Pattern }
func (q request) RemoteAddr() string                { return q.r.RemoteAddr }
func (q request) Header(name string) string         { return q.r.Header.Get(name) }
func (q request) HeaderValues(name string) []string { return q.r.Header.Values(name) }
func (q request) Query(name string) string          { return q.r.URL.Query().Get(name) }
func (q request) Value(key any) any                 { return q.r.Context().Value(key) }
func (q request) Unwrap() any                       { return q.r }
func (q request) Logger() *slog.Logger              { return seenIn(q.r.Context()).Logger() }

func (q request) Cookie(name string) string {
	c, err := q.r.Cookie(name)
	if err != nil {
		return ""
	}
	return c.Value
}

// seenKey is the key of a request's context under which it has its guard.Seen.
type seenKey struct{}

// A seenContext is a context with a guard.Seen, and the copy of the request that has
// this context: one allocation for the three.
type seenContext struct {
	context.Context //nolint:containedctx // it is a context

	seen    guard.Seen
	request http.Request
}

func (c *seenContext) Value(key any) any {
	if key == (seenKey{}) {
		return &c.seen
	}
	return c.Context.Value(key)
}

// Format prints only the context inside c. The decisions and the request in c have the
// user's key and credentials.
func (c *seenContext) Format(s fmt.State, verb rune) {
	_, _ = fmt.Fprintf(s, fmt.FormatString(s, verb), c.Context)
}

// seenIn returns the guard.Seen of the request whose context ctx is, or nil before
// the first middleware.
func seenIn(ctx context.Context) *guard.Seen {
	seen, _ := ctx.Value(seenKey{}).(*guard.Seen)
	return seen
}

// withSeen returns r and its guard.Seen. If r has none, it returns a copy of r that
// has one.
func withSeen(r *http.Request) (*http.Request, *guard.Seen) {
	if seen := seenIn(r.Context()); seen != nil {
		return r, seen
	}
	ctx := &seenContext{Context: r.Context()}
	ctx.request = *r.WithContext(ctx)
	return &ctx.request, &ctx.seen
}
