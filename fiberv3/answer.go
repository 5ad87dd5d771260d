package fiberlimit

import (
	"github.com/gofiber/fiber/v3"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/core/guard/adapter"
)

// An Answerer answers requests for a handler that asks a limiter itself. That is the right place for
// a limit by what only the handler knows, such as the name in a login or the rows that a query will
// read: middleware would have to parse the body as well, and what it reads differently from the
// handler escapes the limit.
//
//	var limit = fiberlimit.NewAnswerer()
//
//	func export(c fiber.Ctx) error {
//		query, err := parse(c)
//		// ...
//		res, err := rows.AllowN(c.Context(), query.Account, query.Rows)
//		if answered, err := limit.Answer(c, res, err); answered {
//			return err
//		}
//		// ... serve it
//	}
//
// An Answerer is safe for concurrent use; one is enough for all handlers.
type Answerer struct {
	answerer *adapter.Answerer
	handlers adapter.Handlers[fiber.Handler]
}

// NewAnswerer returns an Answerer with options such as [guard.Headers], [guard.RetryJitter] and
// [OnDenied]. Like [Middleware], it panics at once if an option is wrong.
func NewAnswerer(opts ...guard.AnswerOption) *Answerer {
	answerer, handlers := framework.NewAnswerer(opts...)
	return &Answerer{answerer, handlers}
}

// Answer reports whether a request must not be served, and in that case answers it, just as
// [Middleware] does: mostly by the error that it returns, which the handler returns. It may be nil
// though, where a handler of the application has answered. The handler passes on what a function or
// method of package core returned, both values: a [core.Result], or a [*core.Reservation], which may
// be nil, and the error.
//
//   - The request is denied: an error in which [errors.As] finds a *fiber.Error with status 429 and
//     a *guard.DeniedError, or what [OnDenied] returns.
//   - The limiter could not decide, because Redis did not answer or a deadline passed: one with 503.
//     c.Context() was canceled: 499. Another error, such as an empty key, is a mistake: 500,
//     and it is logged, at most once a minute. [OnError] answers the three of them.
//   - The request is admitted: Answer only sets the headers about the limit, and returns false.
//
// Headers and [Result] have the tightest of all decisions about a request: those of middlewares and
// those of several calls of Answer. Answer does not wait: for the Delay of a [core.LeakyBucket], use
// [core.Limiter.Wait].
//
// Call Answer while c is valid: not in the writer of a streamed body, which is called when the
// handler has returned.
func (a *Answerer) Answer(c fiber.Ctx, decision core.Decision, err error) (answered bool, answer error) {
	verdict := a.answerer.Answer(c.Context(), (*header)(&request{c}), withState(c), decision, err)
	if verdict.Status == 0 {
		return false, nil
	}
	return true, refuse(c, verdict, a.handlers)
}
