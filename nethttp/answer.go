package httplimit

import (
	"net/http"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/core/guard/adapter"
)

// An Answerer answers requests for handlers that call a limiter themselves. A handler does so if only the
// handler knows what to count, such as the account in a login or the number of rows that a query reads. A
// middleware would have to parse the body a second time, and a client could avoid the limit with a body
// that the middleware and the handler understand differently.
//
//	var limit = httplimit.NewAnswerer()
//
//	func export(w http.ResponseWriter, r *http.Request) {
//		query, err := parse(r)
//		// ...
//		res, err := rows.AllowN(r.Context(), query.Account, query.Rows)
//		if limit.Answer(w, r, res, err) {
//			return
//		}
//		// ... serve it
//	}
//
// An Answerer is safe for concurrent use. One is enough for all handlers.
type Answerer struct {
	answerer *adapter.Answerer
	handlers adapter.Handlers[http.Handler]
}

// NewAnswerer returns an Answerer. Its options control headers and answers, such as [guard.Headers],
// [guard.RetryJitter] and [OnDenied]. Like [Middleware], NewAnswerer panics at once if an option is wrong.
func NewAnswerer(opts ...guard.AnswerOption) *Answerer {
	answerer, handlers := framework.NewAnswerer(opts...)
	return &Answerer{answerer, handlers}
}

// Answer answers a request that must not be served, as [Middleware] would, and reports whether it has
// answered. If it has, the handler must return. Pass both values that the call of package core returned:
// the decision, which is a [core.Result], a [*core.Permit] or a [*core.Reservation], and the error. After
// an error, the Permit or the Reservation is nil.
//
//   - If the request is denied, the status is 429, with Retry-After and a problem+json body. With
//     [OnDenied], its handler answers instead. [core.ErrNeverAdmitted] counts as a denial, but has no
//     Retry-After.
//   - If the limiter could not decide, because Redis did not answer or a deadline passed, the status is
//     503. If the client has left, the status is 499, which is for logs. Any other error, such
//     as an empty key, is a mistake in the application: the status is 500, and the error is logged at
//     most once a minute. With [OnError], its handler answers instead in all these cases.
//   - If the request is admitted, Answer only sets the headers about the limit, and returns false.
//
// The headers and [Result] describe the tightest of all decisions about the request, if it passed a
// Middleware or [Answerer.Handler]. Otherwise the headers describe the last decision, and Result
// returns false.
//
// Answer does not wait. To wait for the Delay of a [core.LeakyBucket], use [core.Limiter.Wait].
//
// Call Answer before anything is written. Once the response has begun, Answer neither writes nor
// sets headers, and logs this once. It still reports whether the handler must return. Answer can
// recognize that a response has begun if the writer is one of net/http, or a writer around it that
// has a method Unwrap or embeds an http.ResponseWriter.
func (a *Answerer) Answer(w http.ResponseWriter, outer *http.Request, decision core.Decision, err error) (answered bool) {
	r, state := withState(outer)
	if hasBegun(w) {
		return a.answerer.AnswerLate(r.Context(), state, decision, err)
	}
	verdict := a.answerer.Answer(r.Context(), w.Header(), state, decision, err)
	if verdict.Status == 0 {
		return false
	}
	defer keepForm(outer, r)
	refuse(w, r, verdict, a.handlers)
	return true
}

// Handler returns a handler that calls next and keeps the decisions about each request. Use Handler
// around a handler that calls [Answerer.Answer] several times for one request, so that the headers
// describe the tightest decision, and around a handler that calls [Result]. Behind a [Middleware],
// which also keeps the decisions, Handler is not needed.
func (*Answerer) Handler(next http.Handler) http.Handler {
	if next == nil {
		panic("httplimit: Answerer.Handler(nil): want the handler that calls Answer")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, outer *http.Request) {
		r, _ := withState(outer)
		defer keepForm(outer, r)
		next.ServeHTTP(w, r)
	})
}
