package fiberlimit

import (
	"github.com/gofiber/fiber/v2"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/core/guard/adapter"
)

// An Answerer answers requests for handlers that call a limiter themselves. A handler does so if only the
// handler knows what to count, such as the account in a login or the number of rows that a query reads. A
// middleware would have to parse the body a second time, and a client could avoid the limit with a body
// that the middleware and the handler understand differently.
//
//	var limit = fiberlimit.NewAnswerer()
//
//	func export(c *fiber.Ctx) error {
//		query, err := parse(c)
//		// ...
//		res, err := rows.AllowN(c.UserContext(), query.Account, query.Rows)
//		if answered, err := limit.Answer(c, res, err); answered {
//			return err
//		}
//		// ... serve it
//	}
//
// An Answerer is safe for concurrent use. One is enough for all handlers.
type Answerer struct {
	answerer *adapter.Answerer
	handlers adapter.Handlers[fiber.Handler]
}

// NewAnswerer returns an Answerer. Its options control headers and answers, such as [guard.Headers],
// [guard.RetryJitter] and [OnDenied]. Like [Middleware], NewAnswerer panics at once if an option is wrong.
func NewAnswerer(opts ...guard.AnswerOption) *Answerer {
	answerer, handlers := framework.NewAnswerer(opts...)
	return &Answerer{answerer, handlers}
}

// Answer answers a request that must not be served, as [Middleware] would, and reports whether it has
// answered. If it has, the handler must return answer, which is nil if the handler of [OnDenied]
// or [OnError] has answered. Pass both values that the call of package core returned: the decision, which
// is a [core.Result], a [*core.Permit] or a [*core.Reservation], and the error. After an error, the Permit
// or the Reservation is nil.
//
//   - If the request is denied, answer is an error in which [errors.As] finds a *fiber.Error with
//     status 429 and a *guard.DeniedError. With [OnDenied], answer is what its handler returns.
//     [core.ErrNeverAdmitted] counts as a denial, but has no *guard.DeniedError.
//   - If the limiter could not decide, because Redis did not answer or a deadline passed, the
//     status is 503. If c.UserContext() was canceled, the status is 499. Any other error, such as
//     an empty key, is a mistake in the application: the status is 500, and the error is logged at
//     most once a minute. In all these cases, answer is an error with this status
//     or, with [OnError], what its handler returns.
//   - If the request is admitted, Answer only sets the headers about the limit, and returns false.
//
// The headers and [Result] describe the tightest of all decisions about the request: the decisions of
// middlewares and of earlier calls of Answer.
//
// Answer does not wait. To wait for the Delay of a [core.LeakyBucket], use [core.Limiter.Wait].
//
// Call Answer while c is valid: not in the writer of a streamed body, which Fiber calls after the
// handler has returned.
func (a *Answerer) Answer(c *fiber.Ctx, decision core.Decision, err error) (answered bool, answer error) {
	verdict := a.answerer.Answer(c.UserContext(), header{c}, withState(c), decision, err)
	if verdict.Status == 0 {
		return false, nil
	}
	return true, refuse(c, verdict, a.handlers)
}
