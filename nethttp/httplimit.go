// Package httplimit is rate limiting for net/http: one line of middleware.
//
//	http.Handle("/", httplimit.Middleware(lim, keyfunc.IP())(mux))
package httplimit

import (
	"net/http"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/keyfunc"
)

// Middleware returns middleware that asks lim about each request, counted by key,
// and sets X-RateLimit-Limit, -Remaining and -Reset on every limited response.
// A denied request gets status 429 with Retry-After and a problem+json body
// (RFC 9457); when Redis cannot answer, it gets 503.
//
// It panics at once if lim or key is nil.
func Middleware(lim *core.Limiter, key keyfunc.Func, opts ...guard.Option) func(http.Handler) http.Handler {
	g := guard.New(lim, key, opts...)
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			verdict := g.Check(request{r}, w.Header())
			if verdict.Status == 0 {
				next.ServeHTTP(w, r)
				return
			}
			w.Header().Set("Content-Type", guard.ProblemType)
			w.WriteHeader(verdict.Status)
			_, _ = w.Write(guard.Problem(verdict.Status)) // a client that is gone needs no answer
		})
	}
}
