// Package echolimit limits the rate of requests to an Echo v4 application, with one line of middleware:
//
//	lim := core.MustNew(rdb, "api", core.TokenBucket(core.PerMinute(100)))
//	e.Use(echolimit.Middleware(lim, keyfunc.IP()))
package echolimit

import (
	"github.com/labstack/echo/v4"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/core/guard/adapter"
	"github.com/redislimit/redislimit/keyfunc"
)

const framework = adapter.Adapter[echo.Context, echo.HandlerFunc]("echolimit")

// Middleware returns a middleware. For each request, key returns what the request is counted by, and
// lim decides. The middleware sets X-RateLimit-Limit, -Remaining and -Reset on every limited response.
// A denied request gets an *echo.HTTPError with status 429, which the application's HTTPErrorHandler
// renders and in which [errors.As] finds a *guard.DeniedError. While Redis does not answer and the
// outage policy is [core.FailClosed], the status is 503.
//
// With a LeakyBucket, a request waits for its Delay. If the client disconnects during the wait, the wait
// ends and the charge is refunded. net/http detects a disconnect only after the request's body has been
// read.
//
// If a request holds slots of [core.InFlight] and they are lost, the context of the request is
// canceled with the cause [core.ErrSlotLost].
//
// Middleware panics at once if lim or key is nil.
func Middleware(lim *core.Limiter, key keyfunc.Func, opts ...guard.Option) echo.MiddlewareFunc {
	g, handlers := framework.New(lim, key, opts...)
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			r := newRequest(c)
			verdict := g.Check(r, c.Response().Header(), r.state)
			switch {
			case verdict.Status != 0:
				return refuse(c, verdict, handlers)
			case g.NeedsFinish(verdict):
				return serveAndFinish(g, verdict, next, c)
			}
			return next(c)
		}
	}
}

// OnDenied makes h answer denied requests; otherwise the middleware returns an error. The headers are
// set before h is called. If h sets no status, the status is 429. [Result] returns the decision.
func OnDenied(h echo.HandlerFunc) guard.AnswerOption { return framework.OnDenied(h) }

// OnError makes h answer requests that are not served for any reason other than a denial, for example because
// Redis does not answer. If h sets no status, the status is 503. It is 500 if the key function or
// [guard.LimiterFor] failed, or if the limiter was used wrongly, and 499 if the client has left.
func OnError(h echo.HandlerFunc) guard.AnswerOption { return framework.OnError(h) }

// Key returns a key function that calls f with the request's echo.Context. Add a prefix to the key, as in
// "tenant:"+id, so that it never equals a key of another kind. If f returns [keyfunc.ErrNoKey], the request
// is counted by a fallback, which [keyfunc.ErrNoKey] describes. If f returns any other error, the request
// is answered with 500. Under the middleware of another adapter, the key function panics.
func Key(f func(echo.Context) (string, error)) keyfunc.Func { return framework.Key(f) }

// Request returns the request of c as key functions see it, so that the function passed to [Key] can call
// other key functions, such as [keyfunc.IP].
func Request(c echo.Context) keyfunc.Request { return &request{c: c, state: stateIn(c)} }

// Result returns the decision about the request of c. With stacked middlewares it is the tightest of their
// decisions, even if the middleware that made this decision sets no headers. Result returns false if no
// limiter has decided.
func Result(c echo.Context) (core.Result, bool) { return stateIn(c).Result() }

// SetCost sets the true cost of the request of c. When its response ends, the middlewares with
// [guard.CostAfter] charge n units; other middlewares ignore n. The last call of SetCost counts. A
// negative n is a mistake: it is logged, and the reserved units are charged.
func SetCost(c echo.Context, n int64) { stateIn(c).SetCost(n) }
