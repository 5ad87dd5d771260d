// Package ginlimit is rate limiting for Gin: one line of middleware.
//
//	r.Use(ginlimit.Middleware(lim, keyfunc.IP()))
package ginlimit

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/keyfunc"
)

// Middleware returns middleware that asks lim about each request, counted by key,
// and sets X-RateLimit-Limit, -Remaining and -Reset on every limited response.
// A denied request is aborted with status 429, Retry-After and a problem+json
// body (RFC 9457); when Redis cannot answer, it is aborted with 503.
//
// A LeakyBucket's Delay is held; a client that leaves meanwhile is let go and its
// charge given back, as far as net/http notices: once the request's body is read.
//
// It panics at once if lim or key is nil.
func Middleware(lim *core.Limiter, key keyfunc.Func, opts ...guard.Option) gin.HandlerFunc {
	g := guard.New(lim, key, opts...)
	denied, failed := guard.Handlers[gin.HandlerFunc](g)
	return func(c *gin.Context) {
		verdict := g.Check(request{c}, c.Writer.Header(), remember(c))
		switch {
		case verdict.Status == 0 && g.CountsByStatus():
			settle(g, verdict, c)
		case verdict.Status == 0: // Gin goes on by itself
		case verdict.Status == http.StatusTooManyRequests && denied != nil:
			abort(c, verdict.Status, denied)
		case verdict.Status != http.StatusTooManyRequests && failed != nil:
			abort(c, verdict.Status, failed)
		default:
			c.Abort()
			c.Data(verdict.Status, guard.ProblemType, guard.Problem(verdict.Status))
		}
	}
}

func abort(c *gin.Context, status int, answer gin.HandlerFunc) {
	c.Abort()
	c.Status(status)
	answer(c)
}

// OnDenied answers denied requests instead of the problem+json body; the headers
// are set before, and the request is aborted. If h sets no status it is 429.
// [Result] has the decision.
func OnDenied(h gin.HandlerFunc) guard.Option { return guard.OnDenied(h) }

// OnError answers requests without a decision, which are aborted. If h sets no
// status it is 503, or 500 when the key function failed.
func OnError(h gin.HandlerFunc) guard.Option { return guard.OnError(h) }

// Key makes a key function of one over *gin.Context. Tag what it returns, as in
// "tenant:"+id, so that it meets no key of another kind. [keyfunc.ErrNoKey] has the
// request counted by its peer's address; any other error is answered with 500.
func Key(f func(*gin.Context) (string, error)) keyfunc.Func {
	if f == nil {
		panic("ginlimit: Key(nil): want a function over *gin.Context")
	}
	return func(r keyfunc.Request) (string, error) {
		native, _ := r.Unwrap().(*gin.Context)
		return f(native)
	}
}

// Result returns the decision about the request of c: of stacked middlewares, the
// tightest. It is false where no limiter decided.
func Result(c *gin.Context) (core.Result, bool) {
	value, _ := c.Get(seenKey)
	seen, ok := value.(*guard.Seen)
	if !ok {
		return core.Result{}, false
	}
	return seen.Result, seen.Result.Source != core.SourceNone
}
