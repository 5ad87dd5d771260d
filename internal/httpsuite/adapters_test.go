package httpsuite_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/internal/httpsuite"
	"github.com/redislimit/redislimit/keyfunc"
	httplimit "github.com/redislimit/redislimit/nethttp"
)

func TestNetHTTP(t *testing.T) {
	httpsuite.Exercise(t, httpsuite.Adapter{Name: "nethttp", Serve: serveNetHTTP})
}

func serveNetHTTP(t *testing.T, lim *core.Limiter, key keyfunc.Func, opts ...guard.Option) string {
	served := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "served") })
	limited := httplimit.Middleware(lim, key, opts...)(served)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user := r.Header.Get(httpsuite.UserHeader); user != "" {
			r = r.WithContext(context.WithValue(r.Context(), httpsuite.UserKey, user))
		}
		limited.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL
}
