package httplimit

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/redislimit/redislimit/core/guard/adapter"
)

// A request presents an *http.Request to key functions. It is a single pointer, so that it needs no
// allocation.
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
func (q request) Logger() *slog.Logger              { return stateIn(q.r.Context()).Logger() }

func (q request) Cookie(name string) string {
	c, err := q.r.Cookie(name)
	if err != nil {
		return ""
	}
	return c.Value
}

// stateKey is the key of the adapter.RequestState in a request's context.
type stateKey struct{}

// A stateContext is a context with an adapter.RequestState, together with the copy of the request that has
// this context. The three take one allocation.
type stateContext struct {
	context.Context //nolint:containedctx // it is a context

	state   adapter.RequestState
	request http.Request
}

func (c *stateContext) Value(key any) any {
	if key == (stateKey{}) {
		return &c.state
	}
	return c.Context.Value(key)
}

// Format prints only the context inside c. The decisions and the request in c contain the user's key and
// credentials.
func (c *stateContext) Format(s fmt.State, verb rune) {
	_, _ = fmt.Fprintf(s, fmt.FormatString(s, verb), c.Context)
}

// stateIn returns the adapter.RequestState of the request whose context is ctx, or nil before the first
// middleware.
func stateIn(ctx context.Context) *adapter.RequestState {
	state, _ := ctx.Value(stateKey{}).(*adapter.RequestState)
	return state
}

// withState returns r and its adapter.RequestState. If r has none, it returns a copy of r that has
// one.
func withState(r *http.Request) (*http.Request, *adapter.RequestState) {
	if state := stateIn(r.Context()); state != nil {
		return r, state
	}
	ctx := &stateContext{Context: r.Context()}
	ctx.request = *r.WithContext(ctx)
	return &ctx.request, &ctx.state
}

// keepForm gives outer the form that was parsed from r, which may be a copy of outer. The server removes
// the temporary files of the form that it finds in outer.
func keepForm(outer, r *http.Request) { outer.MultipartForm = r.MultipartForm }
