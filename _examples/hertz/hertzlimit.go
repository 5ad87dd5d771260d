// Package hertzlimit is an adapter for Hertz that you can copy. docs/adapters.md says what each part is for. The package is a Go module of
// its own; "go test -C _examples/hertz ./..." runs its tests.
package hertzlimit

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"

	"github.com/cloudwego/hertz/pkg/app"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/core/guard/adapter"
	"github.com/redislimit/redislimit/keyfunc"
)

const framework = adapter.Adapter[*app.RequestContext, app.HandlerFunc]("hertzlimit")

// Middleware limits requests by key. Clients get the same answers as from the middleware for net/http.
func Middleware(lim *core.Limiter, key keyfunc.Func, opts ...guard.Option) app.HandlerFunc {
	g, handlers := framework.New(lim, key, opts...)
	return func(ctx context.Context, c *app.RequestContext) {
		state := stateIn(c)
		if state == nil {
			state = &adapter.RequestState{}
			c.Set(stateKey, state)
		}
		v := g.Check(request{c, ctx, state}, header{c}, state)
		switch handler, ok := handlers.For(v); {
		case v.Status == 0 && g.NeedsFinish(v):
			status := http.StatusInternalServerError // if the handler panics
			defer func() { g.Finish(ctx, v, status) }()
			c.Next(cmp.Or(v.Context, ctx))
			status = c.Response.StatusCode()
		case v.Status == 0:
			c.Next(ctx)
		case ok:
			c.SetStatusCode(v.Status)
			handler(ctx, c)
			c.Abort()
		default:
			c.Data(v.Status, guard.ProblemType, guard.Problem(v.Status, v.Err))
			c.Abort()
		}
	}
}

// OnDenied answers denied requests, with 429 unless h sets a status.
func OnDenied(h app.HandlerFunc) guard.AnswerOption { return framework.OnDenied(h) }

// OnError answers requests without a decision.
func OnError(h app.HandlerFunc) guard.AnswerOption { return framework.OnError(h) }

// Key returns a key function that calls f with the arguments of Hertz's handlers.
func Key(f func(context.Context, *app.RequestContext) (string, error)) keyfunc.Func {
	return framework.ContextKey(f)
}

// Request returns a request for the function given to Key, so that it can call other key functions.
func Request(ctx context.Context, c *app.RequestContext) keyfunc.Request {
	return request{c, ctx, stateIn(c)}
}

// Result returns the decision, for handlers.
func Result(c *app.RequestContext) (core.Result, bool) { return stateIn(c).Result() }

// SetCost sets the cost that guard.CostAfter charges.
func SetCost(c *app.RequestContext, n int64) { stateIn(c).SetCost(n) }

const stateKey = "github.com/redislimit/redislimit"

func stateIn(c *app.RequestContext) *adapter.RequestState {
	value, _ := c.Get(stateKey)
	state, _ := value.(*adapter.RequestState)
	return state
}

// A request presents a request of Hertz to key functions. Its strings are copies, because Hertz reuses the memory.
type request struct {
	c     *app.RequestContext
	ctx   context.Context
	state *adapter.RequestState
}

func (q request) Context() context.Context          { return q.ctx }
func (q request) Method() string                    { return string(q.c.Method()) }
func (q request) Path() string                      { return string(q.c.Path()) }
func (q request) Route() string                     { return q.c.FullPath() }
func (q request) RemoteAddr() string                { return q.c.RemoteAddr().String() }
func (q request) Header(name string) string         { return string(q.c.Request.Header.Peek(name)) }
func (q request) HeaderValues(name string) []string { return q.c.Request.Header.GetAll(name) }
func (q request) Query(name string) string          { return q.c.Query(name) }
func (q request) Cookie(name string) string         { return string(q.c.Cookie(name)) }
func (q request) Unwrap() any                       { return q.c }
func (q request) Logger() *slog.Logger              { return q.state.Logger() }
func (q request) Value(key any) any {
	if value := q.c.Value(key); value != nil {
		return value
	}
	return q.ctx.Value(key)
}

// A header contains the headers of the response.
type header struct{ c *app.RequestContext }

func (h header) Get(name string) string { return h.c.Response.Header.Get(name) }
func (h header) Set(name, value string) { h.c.Response.Header.Set(name, value) }
func (h header) Del(name string)        { h.c.Response.Header.Del(name) }
