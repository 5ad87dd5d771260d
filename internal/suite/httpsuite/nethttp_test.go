package httpsuite_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/suite/httpsuite"
	httplimit "github.com/redislimit/redislimit/nethttp"
)

func netHTTP() httpsuite.Adapter {
	return httpsuite.Adapter{
		Name: "net/http", Start: startNetHTTP, Problem: true,
		Patterns: map[httpsuite.MountPoint]string{
			httpsuite.InGroup: "/g/", // the pattern that matched in the outer ServeMux
			httpsuite.OnRoute: "/g/users/{id}",
		},
	}
}

// startNetHTTP routes by http.ServeMux. A group has a ServeMux of its own within that.
func startNetHTTP(_ *testing.T, app httpsuite.App) *httpsuite.Server {
	mux := http.NewServeMux()
	for _, group := range app.Groups {
		inner := http.NewServeMux()
		handleNetHTTP(inner, group.Prefix, group.Routes)
		mux.Handle(group.Prefix+"/", mountNetHTTP(group.Use, inner))
	}
	handleNetHTTP(mux, "", app.Routes)
	handler := mountNetHTTP(app.Pre, mountNetHTTP(app.Use, mux))
	if app.Recover {
		handler = recoverNetHTTP(handler)
	}
	return httpsuite.ServeHTTP(handler, app)
}

func handleNetHTTP(mux *http.ServeMux, prefix string, routes []httpsuite.Route) {
	for _, route := range routes {
		mux.Handle(prefix+route.Path, mountNetHTTP(route.Use, handlerNetHTTP(route.Handler)))
	}
}

func mountNetHTTP(mounts []httpsuite.Mount, next http.Handler) http.Handler {
	for _, mount := range slices.Backward(mounts) {
		next = middlewareNetHTTP(mount)(next)
	}
	return next
}

func middlewareNetHTTP(mount httpsuite.Mount) func(http.Handler) http.Handler {
	switch m := mount.(type) {
	case httpsuite.Auth:
		return before(func(_ http.ResponseWriter, r *http.Request) *http.Request {
			if user := r.Header.Get(httpsuite.UserHeader); user != "" {
				return httpsuite.SignIn(r, httpsuite.UserKey, user)
			}
			return r
		})
	case httpsuite.AddHeader:
		return before(func(w http.ResponseWriter, r *http.Request) *http.Request {
			w.Header().Add(m.Name, m.Value)
			return r
		})
	case httpsuite.Log:
		return func(next http.Handler) http.Handler { return httpsuite.LogTo(m.Saw, next) }
	case httpsuite.CORS:
		return func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if httpsuite.AllowOrigins(w.Header(), r) {
					w.WriteHeader(http.StatusNoContent)
					return
				}
				next.ServeHTTP(w, r)
			})
		}
	case httpsuite.Compress:
		return func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				z := httpsuite.Zip(w)
				next.ServeHTTP(z, r)
				_ = z.Close() // fails only if the client has left
			})
		}
	case httpsuite.Limit:
		key := httpsuite.KeyOf(m, httplimit.Key, httplimit.Request, func(r *http.Request) string { return r.Header.Get(httpsuite.KeyHeader) })
		return httplimit.Middleware(m.Limiter, key, httpsuite.Options(m, handlerNetHTTP, httplimit.OnDenied, httplimit.OnError)...)
	}
	panic(fmt.Sprintf("a mount %T", mount))
}

// before returns a middleware that calls first before the next handler.
func before(first func(http.ResponseWriter, *http.Request) *http.Request) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(w, first(w, r)) })
	}
}

func recoverNetHTTP(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if recover() != nil {
				http.Error(w, "recovered", http.StatusInternalServerError)
			}
		}()
		next.ServeHTTP(w, r)
	})
}

// handlerNetHTTP returns a handler that renders the errors of h.
func handlerNetHTTP(h httpsuite.Handler) http.Handler {
	limit := httplimit.NewAnswerer(httpsuite.AnswerOptions(h.Answers, handlerNetHTTP, httplimit.OnDenied, httplimit.OnError)...)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := h.Serve(httpsuite.HTTPContext{
			W: w, R: r,
			Refuse: func(status int) error {
				http.Error(w, http.StatusText(status), status)
				return nil
			},
			Show:   func() (core.Result, bool) { return httplimit.Result(r.Context()) },
			Charge: func(n int64) { httplimit.SetCost(r.Context(), n) },
			Reply: func(decision core.Decision, err error) (bool, error) {
				return limit.Answer(w, r, decision, err), nil
			},
		}); err != nil {
			status, body := httpsuite.Render(err, http.StatusInternalServerError)
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	})
	if len(h.Asks) > 1 || len(h.Asks) > 0 && h.Do == httpsuite.ShowResult {
		return limit.Handler(handler)
	}
	return handler
}
