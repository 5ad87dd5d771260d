// Package fiberlimit limits the rate of requests to a Fiber v3 application, with one line of middleware:
//
//	lim := core.MustNew(rdb, "api", core.TokenBucket(core.PerMinute(100)))
//	app.Use(fiberlimit.Middleware(lim, keyfunc.IP()))
package fiberlimit

import (
	"strings"

	"github.com/gofiber/fiber/v3"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/core/guard/adapter"
	"github.com/redislimit/redislimit/keyfunc"
)

const framework = adapter.Adapter[fiber.Ctx, fiber.Handler]("fiberlimit")

// Middleware returns a middleware. For each request, key returns what the request is counted by, and lim
// decides. The middleware sets X-RateLimit-Limit, -Remaining and -Reset on every limited response. For a
// denied request it returns an error that the application's ErrorHandler renders: [errors.As] finds a
// *fiber.Error with status 429 and a *guard.DeniedError in it. While Redis does not answer and the outage
// policy is [core.FailClosed], the status is 503.
//
// With a LeakyBucket, a request waits for its Delay. fasthttp does not detect that a client disconnects:
// the request keeps waiting, and its handler runs. If a context that was set by c.SetContext ends, the wait
// ends, and the charge is refunded.
//
// fasthttp appends the trailer of a chunked body to the headers. Key functions therefore see only the
// headers in the header block of a chunked request, and no headers that the application added before the
// middleware. Do not count by a header that your application adds: a client that sends its body in chunks would
// be counted by its peer instead. Use c.Locals and [keyfunc.User].
//
// With [guard.CountIf], [guard.CostAfter] or [core.InFlight], the application's ErrorHandler renders an
// error of the handler at once, as it does with Fiber's own logger, because only the ErrorHandler
// determines the final status. Middleware further out then sees no error.
//
// Requests that hold slots of [core.InFlight] have a c.Context() that is canceled, with the cause
// [core.ErrSlotLost], if the slots are lost. c itself, which is a context.Context too, never ends:
// pass on c.Context().
//
// A request that Fiber's Timeout answers is over for the limiter, although its handler goes on.
//
// Fiber also passes requests that fasthttp refused, such as a request with a body above BodyLimit,
// to the handlers that are mounted by Use. The middleware neither counts such a request nor passes
// it on. Mount handlers that set headers on the answer, such as CORS, before it.
//
// Middleware panics at once if lim or key is nil.
func Middleware(lim *core.Limiter, key keyfunc.Func, opts ...guard.Option) fiber.Handler {
	g, handlers := framework.New(lim, key, opts...)
	return func(c fiber.Ctx) error {
		if refused(c) {
			return nil // Fiber answers it
		}
		q := &request{c}
		verdict := g.Check(q, (*header)(q), withState(c))
		switch {
		case verdict.Status != 0:
			return refuse(c, verdict, handlers)
		case g.NeedsFinish(verdict):
			return serveAndFinish(g, verdict, c)
		}
		return c.Next()
	}
}

// OnDenied makes h answer denied requests; otherwise the middleware returns an error. The headers are
// set before h is called. If h sets no status, the status is 429. [Result] returns the decision.
func OnDenied(h fiber.Handler) guard.AnswerOption { return framework.OnDenied(h) }

// OnError makes h answer requests that are not served for any reason other than a denial, for example because
// Redis does not answer. If h sets no status, the status is 503. It is 500 if the key function or
// [guard.LimiterFor] failed, or if the limiter was used wrongly, and 499 if the client has left.
func OnError(h fiber.Handler) guard.AnswerOption { return framework.OnError(h) }

// Key returns a key function that calls f with the request's fiber.Ctx. Add a prefix to the key, as in
// "tenant:"+id, so that it never equals a key of another kind. The key is copied, because Fiber reuses the
// memory of its strings after the handler. If f returns [keyfunc.ErrNoKey], the request is counted by a
// fallback, which [keyfunc.ErrNoKey] describes. If f returns any other error, the request is answered with
// 500. Under the middleware of another adapter, the key function panics.
func Key(f func(fiber.Ctx) (string, error)) keyfunc.Func {
	key := framework.Key(f)
	return func(r keyfunc.Request) (string, error) {
		k, err := key(r)
		return strings.Clone(k), err
	}
}

// Request returns the request of c as key functions see it, so that the function passed to [Key] can call
// other key functions, such as [keyfunc.IP]. It is valid as long as c is valid.
func Request(c fiber.Ctx) keyfunc.Request { return request{c} }

// Result returns the decision about the request of c. With stacked middlewares it is the tightest of their
// decisions, even if the middleware that made this decision sets no headers. Result returns false if no
// limiter has decided.
func Result(c fiber.Ctx) (core.Result, bool) {
	return stateIn(c).Result()
}

// SetCost sets the true cost of the request of c. When its response ends, the middlewares with
// [guard.CostAfter] charge n units; other middlewares ignore n. The last call of SetCost counts. A
// negative n is a mistake: it is logged, and the reserved units are charged.
//
// Do not call SetCost after the handler has returned, because c is no longer valid then: n would be lost,
// or would count for another request that uses c. Use [CostSetter] there.
func SetCost(c fiber.Ctx, n int64) { stateIn(c).SetCost(n) }

// CostSetter returns [SetCost] for the request of c. The returned function can be called even after the
// handler has returned, when c is no longer valid: by the writer of a streamed body, or by code that uses a
// hijacked connection. If the client leaves before the function is called, the reserved units are charged.
// So call the function again and again while the cost grows.
func CostSetter(c fiber.Ctx) func(n int64) { return stateIn(c).SetCost }
