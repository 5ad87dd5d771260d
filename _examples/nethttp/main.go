// Command nethttp serves three rate-limited routes with net/http. Without -redis it
// starts an embedded Redis, so that "go run ./_examples/nethttp" needs nothing else.
package main

import (
	"context"
	"fmt"
	"net/http"

	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/internal/demo"
	"github.com/redislimit/redislimit/keyfunc"
	httplimit "github.com/redislimit/redislimit/nethttp"
)

func main() {
	demo.Main("nethttp", func(app *demo.App) demo.Server { return demo.HTTPServer(routes(app)) })
}

// userKey is where the demo authentication stores the user in a request's context.
type userKey struct{}

func routes(app *demo.App) http.Handler {
	byIP := httplimit.Middleware(app.Home, keyfunc.IP())
	byUser := httplimit.Middleware(app.User, keyfunc.User(userKey{}))
	byKey := httplimit.Middleware(app.APIKey, keyfunc.APIKey("X-API-Key", keyfunc.Known(demo.Issued)))

	mux := http.NewServeMux()
	mux.Handle("GET /{$}", byIP(say("hello")))
	mux.Handle("GET /user", authenticate(byUser(say("hello, user"))))
	mux.Handle("GET /key", byKey(say("hello, key")))
	mux.Handle("GET /healthz", say("ok"))
	return mux
}

func say(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, text) })
}

// authenticate puts the user into the request's context. It accepts any
// password, because it is a demo.
func authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, _, _ := r.BasicAuth()
		if user == "" {
			w.Header().Set("WWW-Authenticate", demo.Challenge)
			w.Header().Set("Content-Type", guard.ProblemType)
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = w.Write(guard.Problem(http.StatusUnauthorized, nil))
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, user)))
	})
}
