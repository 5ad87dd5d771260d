// Package echolimit is rate limiting for Echo v4: one line of middleware.
//
//	e.Use(echolimit.Middleware(lim, keyfunc.IP()))
package echolimit

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/keyfunc"
)

// Middleware returns middleware that asks lim about each request, counted by key,
// and sets X-RateLimit-Limit, -Remaining and -Reset on every limited response.
// A denied request gets an *echo.HTTPError with status 429, which the
// application's HTTPErrorHandler renders and in which [errors.As] finds a
// *guard.DeniedError; when Redis cannot answer, one with 503.
//
// A LeakyBucket's Delay is held; a client that leaves meanwhile is let go and its
// charge given back, as far as net/http notices: once the request's body is read.
//
// It panics at once if lim or key is nil.
func Middleware(lim *core.Limiter, key keyfunc.Func, opts ...guard.Option) echo.MiddlewareFunc {
	g := guard.New(lim, key, opts...)
	denied, failed := guard.Handlers[echo.HandlerFunc](g)
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			r := newRequest(c)
			verdict := g.Check(r, c.Response().Header(), r.seen)
			switch {
			case verdict.Status == 0 && g.CountsByStatus():
				return settle(g, verdict, next, c)
			case verdict.Status == 0:
				return next(c)
			case verdict.Status == http.StatusTooManyRequests && denied != nil:
				return answer(c, verdict.Status, denied)
			case verdict.Status != http.StatusTooManyRequests && failed != nil:
				return answer(c, verdict.Status, failed)
			}
			return &echo.HTTPError{Code: verdict.Status, Message: http.StatusText(verdict.Status), Internal: verdict.Err}
		}
	}
}

// answer serves with h, whose status is the given one if it sets none.
func answer(c echo.Context, status int, h echo.HandlerFunc) error {
	c.Response().Status = status
	if err := h(c); err != nil || c.Response().Committed {
		return err
	}
	return c.NoContent(status)
}

// OnDenied answers denied requests instead of an error; the headers are set
// before. If h sets no status it is 429. [Result] has the decision.
func OnDenied(h echo.HandlerFunc) guard.Option { return guard.OnDenied(h) }

// OnError answers requests without a decision. If h sets no status it is 503, or
// 500 when the key function failed.
func OnError(h echo.HandlerFunc) guard.Option { return guard.OnError(h) }

// Key makes a key function of one over echo.Context. Tag what it returns, as in
// "tenant:"+id, so that it meets no key of another kind. [keyfunc.ErrNoKey] has the
// request counted by its peer's address; any other error is answered with 500.
func Key(f func(echo.Context) (string, error)) keyfunc.Func {
	if f == nil {
		panic("echolimit: Key(nil): want a function over echo.Context")
	}
	return func(r keyfunc.Request) (string, error) {
		native, _ := r.Unwrap().(echo.Context)
		return f(native)
	}
}

// Result returns the decision about the request of c: of stacked middlewares, the
// tightest. It is false where no limiter decided.
func Result(c echo.Context) (core.Result, bool) {
	seen, ok := c.Get(seenKey).(*guard.Seen)
	if !ok {
		return core.Result{}, false
	}
	return seen.Result, seen.Result.Source != core.SourceNone
}
