// Package fiberlimit is rate limiting for Fiber v2: one line of middleware.
//
//	app.Use(fiberlimit.Middleware(lim, keyfunc.IP()))
package fiberlimit

import (
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/keyfunc"
)

const adapter = guard.Adapter[*fiber.Ctx, fiber.Handler]("fiberlimit")

// Middleware returns middleware that asks lim about each request, counted by key,
// and sets X-RateLimit-Limit, -Remaining and -Reset on every limited response.
// A denied request gets an error that the application's ErrorHandler renders: for
// [errors.As] it is a *fiber.Error with status 429 and a *guard.DeniedError; when
// Redis cannot answer, one with 503.
//
// A request waits for a LeakyBucket's Delay. fasthttp does not notice when a client
// leaves: its request waits too, and its handler runs. The context of
// c.SetUserContext ends the wait.
//
// With guard.CountIf an error that the handler returns is rendered by the
// application's ErrorHandler at once, as Fiber's own logger does, because only
// that gives the final status; middleware further out sees no error then.
//
// It panics at once if lim or key is nil.
func Middleware(lim *core.Limiter, key keyfunc.Func, opts ...guard.Option) fiber.Handler {
	g, handlers := adapter.New(lim, key, opts...)
	return func(c *fiber.Ctx) error {
		verdict := g.Check(request{c}, header{c}, withSeen(c))
		switch handler, ok := handlers.For(verdict); {
		case verdict.Status == 0 && g.CountsByStatus():
			return serveAndFinish(g, verdict, c)
		case verdict.Status == 0:
			return c.Next()
		case ok:
			return handler(c.Status(verdict.Status))
		}
		return &answerError{fiber.NewError(verdict.Status), verdict.Err}
	}
}

// OnDenied answers denied requests instead of an error; the headers are set
// before. If h sets no status it is 429. [Result] has the decision.
func OnDenied(h fiber.Handler) guard.Option { return adapter.OnDenied(h) }

// OnError answers requests without a decision. If h sets no status it is 503, or
// 500 when the key function failed.
func OnError(h fiber.Handler) guard.Option { return adapter.OnError(h) }

// Key makes a key function of one over *fiber.Ctx. Tag what it returns, as in
// "tenant:"+id, so that it is never the key of another kind. It is copied: Fiber
// uses its strings again after the handler. If it returns [keyfunc.ErrNoKey] the
// request is counted by its peer's address; any other error is answered with 500.
// Under the middleware of another adapter it panics.
func Key(f func(*fiber.Ctx) (string, error)) keyfunc.Func {
	key := adapter.Key(f)
	return func(r keyfunc.Request) (string, error) {
		k, err := key(r)
		return strings.Clone(k), err
	}
}

// Result returns the decision about the request of c: of stacked middlewares, the
// tightest. It is false where no limiter decided.
func Result(c *fiber.Ctx) (core.Result, bool) {
	return seenIn(c).Result()
}
