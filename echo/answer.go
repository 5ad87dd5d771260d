package echolimit

import (
	"github.com/labstack/echo/v4"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/core/guard/adapter"
)

// An Answerer answers requests for a handler that asks a limiter itself. That is the right place for
// a limit by what only the handler knows, such as the name in a login or the rows that a query will
// read: middleware would have to parse the body as well, and what it reads differently from the
// handler escapes the limit.
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
// An Answerer is safe for concurrent use; one is enough for all handlers.
type Answerer struct {
	answerer *adapter.Answerer
	handlers adapter.Handlers[echo.HandlerFunc]
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
//   - The request is denied: an *echo.HTTPError with status 429, in which [errors.As] finds a
//     *guard.DeniedError, or what [OnDenied] returns.
//   - The limiter could not decide, because Redis did not answer or a deadline passed: one with 503.
//     The client has left: 499. Another error, such as an empty key, is a mistake: 500, and it is
//     logged, at most once a minute. [OnError] answers the three of them.
//   - The request is admitted: Answer only sets the headers about the limit, and returns false.
//
// Headers and [Result] have the tightest of all decisions about a request: those of middlewares and
// those of several calls of Answer. Answer does not wait: for the Delay of a [core.LeakyBucket], use
// [core.Limiter.Wait].
//
// Call Answer before anything is written. Once the response has begun, Answer writes nothing and
// sets no headers, but still reports whether the request must not be served. It logs that once.
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
