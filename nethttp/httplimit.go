// Package httplimit limits the rate of requests to a net/http server, with one line of middleware:
//
//	lim := core.MustNew(rdb, "api", core.TokenBucket(core.PerMinute(100)))
//	http.Handle("/", httplimit.Middleware(lim, keyfunc.IP())(mux))
package httplimit

import (
	"context"
	"net/http"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/core/guard/adapter"
	"github.com/redislimit/redislimit/keyfunc"
)

const framework = adapter.Adapter[*http.Request, http.Handler]("httplimit")

// Middleware returns a middleware. For each request, key returns what the request is counted by, and lim
// decides. The middleware sets X-RateLimit-Limit, -Remaining and -Reset on every limited response. A denied
// request gets status 429 with Retry-After and a problem+json body (RFC 9457). While Redis does not answer
// and the outage policy is [core.FailClosed], the status is 503.
//
// With a LeakyBucket, a request waits for its Delay. If the client disconnects during the wait, the wait
// ends and the charge is refunded. net/http detects a disconnect only after the request's body has been
// read.
//
// If a request holds slots of [core.InFlight] and they are lost, the context of the request is
// canceled with the cause [core.ErrSlotLost].
//
// Middleware panics at once if lim or key is nil.
func Middleware(lim *core.Limiter, key keyfunc.Func, opts ...guard.Option) func(http.Handler) http.Handler {
	g, handlers := framework.New(lim, key, opts...)
	return func(next http.Handler) http.Handler {
		if next == nil {
			panic("httplimit: the handler to limit is nil: for the default of http.ListenAndServe pass http.DefaultServeMux")
		}
		return http.HandlerFunc(func(w http.ResponseWriter, outer *http.Request) {
			r, state := withState(outer)
			defer func() { keepForm(outer, r) }() // deferred, because a panic may be recovered further out
			verdict := g.Check(request{r}, w.Header(), state)
			switch {
			case verdict.Status != 0:
				refuse(w, r, verdict, handlers)
			case g.NeedsFinish(verdict):
				if verdict.Context != nil {
					r = r.WithContext(verdict.Context)
				}
				serveAndFinish(g, verdict, next, w, r)
			default:
				next.ServeHTTP(w, r)
			}
		})
	}
}

// OnDenied makes h answer denied requests, in place of the problem+json body. The headers are set before h
// is called. If h sets no status, the status is 429. [Result] returns the decision.
func OnDenied(h http.Handler) guard.AnswerOption { return framework.OnDenied(h) }

// OnError makes h answer requests that are not served for any reason other than a denial, for example because
// Redis does not answer. If h sets no status, the status is 503. It is 500 if the key function or
// [guard.LimiterFor] failed, or if the limiter was used wrongly, and 499 if the client has left.
func OnError(h http.Handler) guard.AnswerOption { return framework.OnError(h) }

// Key returns a key function that calls f with the request's *http.Request. Add a prefix to the key, as in
// "tenant:"+id, so that it never equals a key of another kind. If f returns [keyfunc.ErrNoKey], the request
// is counted by a fallback, which [keyfunc.ErrNoKey] describes. If f returns any other error, the request
// is answered with 500. Under the middleware of another adapter, the key function panics.
func Key(f func(*http.Request) (string, error)) keyfunc.Func { return framework.Key(f) }

// Request returns r as key functions see it, so that the function passed to [Key] can call other key
// functions, such as [keyfunc.IP].
func Request(r *http.Request) keyfunc.Request { return request{r} }

// Result returns the decision about the request whose context is ctx. With stacked middlewares it is the
// tightest of their decisions, even if the middleware that made this decision sets no headers. Result
// returns false if no limiter has decided.
func Result(ctx context.Context) (core.Result, bool) {
	return stateIn(ctx).Result()
}

// SetCost sets the true cost of the request whose context is ctx. When its response ends, the middlewares
// with [guard.CostAfter] charge n units; other middlewares ignore n. The last call of SetCost counts. A
// negative n is a mistake: it is logged, and the reserved units are charged.
func SetCost(ctx context.Context, n int64) { stateIn(ctx).SetCost(n) }
