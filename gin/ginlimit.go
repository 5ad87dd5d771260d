// Package ginlimit limits the rate of requests to a Gin application, with one line of middleware:
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

// Middleware returns a middleware. For each request, key returns what the request is counted by, and lim
// decides. The middleware sets X-RateLimit-Limit, -Remaining and -Reset on every limited response. A denied
// request is aborted with status 429, Retry-After and a problem+json body (RFC 9457). While Redis does not
// answer and the outage policy is [core.FailClosed], it is aborted with 503.
//
// With a LeakyBucket, a request waits for its Delay. If the client disconnects during the wait, the wait
// ends and the charge is refunded. net/http detects a disconnect only after the request's body has been
// read.
//
// If a request holds slots of [core.InFlight] and they are lost, the context of the request is
// canceled with the cause [core.ErrSlotLost].
//
// Middleware panics at once if lim or key is nil.
func Middleware(lim *core.Limiter, key keyfunc.Func, opts ...guard.Option) gin.HandlerFunc {
	g, handlers := framework.New(lim, key, opts...)
	return func(c *gin.Context) {
		verdict := g.Check(request{c}, c.Writer.Header(), withState(c))
		switch {
		case verdict.Status != 0:
			refuse(c, verdict, handlers)
		case g.NeedsFinish(verdict):
			serveAndFinish(g, verdict, c)
		default: // Gin calls the next handler
		}
	}
}

// OnDenied makes h answer denied requests, instead of the problem+json body. Before h is called, the
// headers are set and the request is aborted. If h sets no status, the status is 429. [Result] returns the
// decision.
func OnDenied(h gin.HandlerFunc) guard.AnswerOption { return framework.OnDenied(h) }

// OnError makes h answer requests that are not served for any reason other than a denial, for example because
// Redis does not answer. Before h is called, the request is aborted. If h sets no status, the status is 503. It
// is 500 if the key function or [guard.LimiterFor] failed, or if the limiter was used wrongly, and 499 if the
// client has left.
func OnError(h gin.HandlerFunc) guard.AnswerOption { return framework.OnError(h) }

// Key returns a key function that calls f with the request's *gin.Context. Add a prefix to the key, as in
// "tenant:"+id, so that it never equals a key of another kind. If f returns [keyfunc.ErrNoKey], the request
// is counted by a fallback, which [keyfunc.ErrNoKey] describes. If f returns any other error, the request
// is answered with 500. Under the middleware of another adapter, the key function panics.
func Key(f func(*gin.Context) (string, error)) keyfunc.Func { return framework.Key(f) }

// Request returns the request of c as key functions see it, so that the function passed to [Key] can call
// other key functions, such as [keyfunc.IP].
func Request(c *gin.Context) keyfunc.Request { return request{c} }

// Result returns the decision about the request of c. With stacked middlewares it is the tightest of their
// decisions, even if the middleware that made this decision sets no headers. Result returns false if no
// limiter has decided.
func Result(c *gin.Context) (core.Result, bool) {
	return stateIn(c).Result()
}

// SetCost sets the true cost of the request of c. When its response ends, the middlewares with
// [guard.CostAfter] charge n units; other middlewares ignore n. The last call of SetCost counts. A
// negative n is a mistake: it is logged, and the reserved units are charged.
func SetCost(c *gin.Context, n int64) { stateIn(c).SetCost(n) }
