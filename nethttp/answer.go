package httplimit

import (
	"net/http"
	"reflect"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/core/guard/adapter"
)

// An Answerer answers requests for a handler that asks a limiter itself. That is the right place for
// a limit by what only the handler knows, such as the name in a login or the rows that a query will
// read: middleware would have to parse the body as well, and what it reads differently from the
// handler escapes the limit.
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
// An Answerer is safe for concurrent use; one is enough for all handlers.
type Answerer struct {
	answerer *adapter.Answerer
	handlers adapter.Handlers[http.Handler]
}

// NewAnswerer returns an Answerer with options such as [guard.Headers], [guard.RetryJitter] and
// [OnDenied]. Like [Middleware], it panics at once if an option is wrong.
func NewAnswerer(opts ...guard.AnswerOption) *Answerer {
	answerer, handlers := framework.NewAnswerer(opts...)
	return &Answerer{answerer, handlers}
}

// Answer reports whether a request must not be served, and answers it in that case, just as
// [Middleware] does. The handler returns then. It passes on what a function or method of package
// core returned, both values: a [core.Result], or a [*core.Reservation], which may be nil, and the
// error.
//
//   - The request is denied: 429 with Retry-After and a problem+json body, or what [OnDenied]
//     answers.
//   - The limiter could not decide, because Redis did not answer or a deadline passed: 503. The
//     client has left: 499. Another error, such as an empty key, is a mistake: 500, and it is logged,
//     at most once a minute. [OnError] answers the three of them.
//   - The request is admitted: Answer only sets the headers about the limit, and returns false.
//
// Headers and [Result] have the tightest of all decisions about a request that passed a Middleware or
// [Answerer.Handler]. Otherwise the headers are those of the last call of Answer, and Result has none.
//
// Answer does not wait: for the Delay of a [core.LeakyBucket], use [core.Limiter.Wait].
//
// Call Answer before anything is written. Once the response has begun, Answer writes nothing and
// sets no headers, but still reports whether the request must not be served. It logs that once.
// Whether the response has begun is known of net/http's own writers, also within others that have a
// method Unwrap or embed an http.ResponseWriter.
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

// Handler returns a handler that calls next, and remembers for each request what [Answerer.Answer]
// was told: for several calls of Answer, so that the headers are those of the tightest decision, and
// for [Result]. Behind a [Middleware], which remembers it as well, Handler is not needed.
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

// hasBegun reports whether the header of a response was written. net/http does not tell, but its
// writers have a field for it. hasBegun looks at w and at the writers inside of it; if none has the
// field, as perhaps in a later net/http, it reports false.
func hasBegun(w http.ResponseWriter) bool {
	for depth := 0; w != nil && depth < maxWriters; depth++ {
		fields := structOf(reflect.ValueOf(w))
		if isTrue(fields, "wroteHeader") || isTrue(structOf(fieldOf(fields, "rws")), "wroteHeader") { // rws is HTTP/2's
			return true
		}
		w = innerWriter(w, fields)
	}
	return false
}

// maxWriters bounds how many writers inside of each other are looked at.
const maxWriters = 100

// innerWriter returns the writer that w writes to, or nil if it is not known.
func innerWriter(w http.ResponseWriter, fields reflect.Value) http.ResponseWriter {
	if wrapper, ok := w.(interface{ Unwrap() http.ResponseWriter }); ok {
		return wrapper.Unwrap()
	}
	if embedded := fieldOf(fields, "ResponseWriter"); embedded.IsValid() && embedded.CanInterface() {
		inner, _ := embedded.Interface().(http.ResponseWriter)
		return inner
	}
	return nil
}

// structOf returns the struct that v is or points to, or the zero Value.
func structOf(v reflect.Value) reflect.Value {
	if v = reflect.Indirect(v); v.Kind() != reflect.Struct {
		return reflect.Value{}
	}
	return v
}

// fieldOf returns the field called name that a struct itself has, or the zero Value.
func fieldOf(structure reflect.Value, name string) reflect.Value {
	if !structure.IsValid() {
		return reflect.Value{}
	}
	field, ok := structure.Type().FieldByName(name)
	if !ok || len(field.Index) != 1 { // or it is in an embedded struct, which may be nil
		return reflect.Value{}
	}
	return structure.Field(field.Index[0])
}

// isTrue reports whether a struct has a field called name that is true.
func isTrue(structure reflect.Value, name string) bool {
	field := fieldOf(structure, name)
	return field.Kind() == reflect.Bool && field.Bool()
}
