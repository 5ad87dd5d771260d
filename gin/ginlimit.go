// Package ginlimit is rate limiting for Gin: one line of middleware.
//
//	lim := core.MustNew(rdb, "api", core.TokenBucket(core.PerMinute(100)))
//	r.Use(ginlimit.Middleware(lim, keyfunc.IP()))
package ginlimit

import (
	"github.com/gin-gonic/gin"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/core/guard/adapter"
	"github.com/redislimit/redislimit/keyfunc"
)

const framework = adapter.Adapter[*gin.Context, gin.HandlerFunc]("ginlimit")

// Middleware returns middleware that asks lim about each request, counted by key, and sets
// X-RateLimit-Limit, -Remaining and -Reset on every limited response. A denied request is aborted
// with status 429, Retry-After and a problem+json body (RFC 9457); without Redis, with
// core.FailClosed, it is aborted with 503.
//
// A request waits for a LeakyBucket's Delay. If the client disconnects meanwhile, the wait ends and
// the charge is refunded. net/http detects a disconnect only after the request's body has been
// read.
//
// Requests that hold slots of [core.InFlight] have a context that is canceled, with the cause
// [core.ErrSlotLost], if the slots are lost.
//
// It panics at once if lim or key is nil.
func Middleware(lim *core.Limiter, key keyfunc.Func, opts ...guard.Option) gin.HandlerFunc {
	g, handlers := framework.New(lim, key, opts...)
	return func(c *gin.Context) {
		verdict := g.Check(request{c}, c.Writer.Header(), withState(c))
		switch {
		case verdict.Status != 0:
			refuse(c, verdict, handlers)
		case g.NeedsFinish(verdict):
			serveAndFinish(g, verdict, c)
		default: // Gin goes on by itself
		}
	}
}

// OnDenied answers denied requests instead of the problem+json body; the headers are set before,
// and the request is aborted. If h sets no status it is 429. [Result] has the decision.
func OnDenied(h gin.HandlerFunc) guard.AnswerOption { return framework.OnDenied(h) }

// OnError answers requests without a decision, which are aborted. If h sets no status it is 503, or
// 500 when the key function failed.
func OnError(h gin.HandlerFunc) guard.AnswerOption { return framework.OnError(h) }

// Key returns a key function that calls f with the request's *gin.Context. Add a prefix to the key,
// as in "tenant:"+id, so that it never equals a key of another kind. If f returns
// [keyfunc.ErrNoKey], the request is counted as that says; any other error is answered with 500.
// Under the middleware of another adapter the key function panics.
func Key(f func(*gin.Context) (string, error)) keyfunc.Func { return framework.Key(f) }

// Request returns the request of c as key functions see it, so that the function given to [Key] can
// call others, such as [keyfunc.IP].
func Request(c *gin.Context) keyfunc.Request { return request{c} }

// Result returns the decision about the request of c: the tightest one of stacked middlewares, also
// of those that set no headers. It reports false if no limiter decided.
func Result(c *gin.Context) (core.Result, bool) {
	return stateIn(c).Result()
}

// SetCost sets what the request of c really costs: the middlewares with [guard.CostAfter] charge n
// units when its response ends, and others ignore it. Of several calls the last one counts. A
// negative n is a mistake: it is logged, and what was reserved is charged.
func SetCost(c *gin.Context, n int64) { stateIn(c).SetCost(n) }
