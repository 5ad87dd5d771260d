package echolimit

import (
	"github.com/labstack/echo/v4"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/core/guard/adapter"
)

// An Answerer answers requests for handlers that call a limiter themselves. A handler does so if only the
// handler knows what to count, such as the account in a login or the number of rows that a query reads. A
// middleware would have to parse the body a second time, and a client could avoid the limit with a body
// that the middleware and the handler understand differently.
//
//	var limit = echolimit.NewAnswerer()
//
//	func export(c echo.Context) error {
//		query, err := parse(c)
//		// ...
//		res, err := rows.AllowN(c.Request().Context(), query.Account, query.Rows)
//		if answered, err := limit.Answer(c, res, err); answered {
//			return err
//		}
//		// ... serve it
//	}
//
// An Answerer is safe for concurrent use. One is enough for all handlers.
type Answerer struct {
	answerer *adapter.Answerer
	handlers adapter.Handlers[echo.HandlerFunc]
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
//   - If the request is denied, answer is an *echo.HTTPError with status 429, in which [errors.As]
//     finds a *guard.DeniedError. With [OnDenied], answer is what its handler returns.
//     [core.ErrNeverAdmitted] counts as a denial, but has no *guard.DeniedError.
//   - If the limiter could not decide, because Redis did not answer or a deadline passed, the
//     status is 503. If the client has left, the status is 499, which is for logs. Any
//     other error, such as an empty key, is a mistake in the application: the status is 500, and
//     the error is logged at most once a minute. In all these cases, answer is an *echo.HTTPError
//     with this status or, with [OnError], what its handler returns.
//   - If the request is admitted, Answer only sets the headers about the limit, and returns false.
//
// The headers and [Result] describe the tightest of all decisions about the request: the decisions of
// middlewares and of earlier calls of Answer.
//
// Answer does not wait. To wait for the Delay of a [core.LeakyBucket], use [core.Limiter.Wait].
//
// Call Answer before anything is written. Once the response has begun, Answer neither writes nor
// sets headers, and logs this once. It still reports whether the handler must return.
func (a *Answerer) Answer(c echo.Context, decision core.Decision, err error) (answered bool, answer error) {
	ctx, state := c.Request().Context(), newRequest(c).state
	if c.Response().Committed {
		return a.answerer.AnswerLate(ctx, state, decision, err), nil
	}
	verdict := a.answerer.Answer(ctx, c.Response().Header(), state, decision, err)
	if verdict.Status == 0 {
		return false, nil
	}
	return true, refuse(c, verdict, a.handlers)
}
