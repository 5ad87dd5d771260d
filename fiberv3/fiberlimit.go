// Package fiberlimit is rate limiting for Fiber v3: one line of middleware.
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

// Middleware returns middleware that asks lim about each request, counted by key, and sets
// X-RateLimit-Limit, -Remaining and -Reset on every limited response. For a denied request it
// returns an error that the application's ErrorHandler renders: [errors.As] finds a *fiber.Error
// with status 429 and a *guard.DeniedError in it. Without Redis, with [core.FailClosed], the status
// is 503.
//
// A request waits for a LeakyBucket's Delay. fasthttp does not detect that a client disconnects:
// the request waits nevertheless, and its handler runs. If the context of c.SetContext ends, the
// wait ends.
//
// fasthttp appends the trailer of a chunked body to the headers. So key functions see only those
// headers of a chunked request that its header block had. They see none that the application added
// before the middleware.
//
// With [guard.CountIf], [guard.CostAfter] or [core.InFlight] an error that the handler returns is
// rendered at once by the application's ErrorHandler, as Fiber's own logger does: only that gives
// the final status. Middleware further out then sees no error.
//
// Requests that hold slots of [core.InFlight] have a c.Context() that is canceled, with the cause
// [core.ErrSlotLost], if the slots are lost. c itself, which is a context.Context too, never ends:
// pass on c.Context().
//
// A request that Fiber's Timeout answers is over for the limiter, although its handler goes on.
//
// Fiber has what is mounted by Use see also what fasthttp refused, such as a body above BodyLimit.
// The middleware does not count it, and does not pass it on. What sets headers on the answer, as
// CORS does, belongs before it.
//
// It panics at once if lim or key is nil.
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

// OnDenied answers denied requests instead of an error; the headers are set before. If h sets no
// status it is 429. [Result] has the decision.
func OnDenied(h fiber.Handler) guard.AnswerOption { return framework.OnDenied(h) }

// OnError answers requests without a decision. If h sets no status it is 503, or 500 when the key
// function failed.
func OnError(h fiber.Handler) guard.AnswerOption { return framework.OnError(h) }

// Key returns a key function that calls f with the request's fiber.Ctx. Add a prefix to the key, as
// in "tenant:"+id, so that it never equals a key of another kind. The key is copied, because Fiber
// reuses the memory of its strings after the handler. If f returns [keyfunc.ErrNoKey], the request
// is counted as that says; any other error is answered with 500. Under the middleware of another
// adapter the key function panics.
func Key(f func(fiber.Ctx) (string, error)) keyfunc.Func {
	key := framework.Key(f)
	return func(r keyfunc.Request) (string, error) {
		k, err := key(r)
		return strings.Clone(k), err
	}
}

// Request returns the request of c as key functions see it, so that the function given to [Key] can
// call others, such as [keyfunc.IP]. It is valid as long as c.
func Request(c fiber.Ctx) keyfunc.Request { return request{c} }

// Result returns the decision about the request of c: the tightest one of stacked middlewares, also
// of those that set no headers. It reports false if no limiter decided.
func Result(c fiber.Ctx) (core.Result, bool) {
	return stateIn(c).Result()
}

// SetCost sets what the request of c really costs: the middlewares with [guard.CostAfter] charge n
// units when its response ends, and others ignore it. Of several calls the last one counts. A
// negative n is a mistake: it is logged, and what was reserved is charged.
//
// When the handler has returned, c is no longer valid: n is lost, or counts for another request
// that has c by then. Use [CostSetter] there.
func SetCost(c fiber.Ctx, n int64) { stateIn(c).SetCost(n) }

// CostSetter returns [SetCost] for the request of c. It can be called when the handler has returned
// and c is no longer valid: by the writer of a streamed body, or by what talks over a hijacked
// connection. If the client leaves before it is called, what was reserved is charged; so call it
// while the cost grows.
func CostSetter(c fiber.Ctx) func(n int64) { return stateIn(c).SetCost }
