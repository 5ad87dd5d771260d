// Command metrics serves the rate-limited routes of the other examples with net/http,
// and Prometheus metrics of its limiters on /metrics. Without -redis it starts an
// embedded Redis. It is a Go module of its own: run it with
// "go run -C _examples/metrics .".
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/internal/demo"
	"github.com/redislimit/redislimit/keyfunc"
	httplimit "github.com/redislimit/redislimit/nethttp"
	otellimit "github.com/redislimit/redislimit/otel"
)

func main() {
	telemetry, metrics, err := prometheusMetrics()
	if err != nil {
		fmt.Fprintln(os.Stderr, "metrics:", err)
		os.Exit(1)
	}
	demo.Main("metrics", func(app *demo.App) demo.Server { return demo.HTTPServer(routes(app, metrics)) }, telemetry)
}

// prometheusMetrics returns the option with which limiters report metrics, and the
// handler that serves them to Prometheus.
func prometheusMetrics() (core.Option, http.Handler, error) {
	registry := prometheus.NewRegistry()
	// Without the three labels of the scope: nothing else is instrumented here.
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry), otelprometheus.WithoutScopeInfo())
	if err != nil {
		return nil, nil, err
	}
	provider := metric.NewMeterProvider(metric.WithReader(exporter))
	return otellimit.Observe(otellimit.MeterProvider(provider)), promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), nil
}

// userKey is where the demo authentication stores the user in a request's context.
type userKey struct{}

func routes(app *demo.App, metrics http.Handler) http.Handler {
	byIP := httplimit.Middleware(app.Home, keyfunc.IP())
	byUser := httplimit.Middleware(app.User, keyfunc.User(userKey{}))
	byKey := httplimit.Middleware(app.APIKey, keyfunc.APIKey("X-API-Key", keyfunc.Known(demo.Issued)))

	mux := http.NewServeMux()
	mux.Handle("GET /{$}", byIP(say("hello")))
	mux.Handle("GET /user", authenticate(byUser(say("hello, user"))))
	mux.Handle("GET /key", byKey(say("hello, key")))
	mux.Handle("GET /healthz", say("ok"))
	mux.Handle("GET /metrics", metrics) // in production: on an address that only Prometheus can reach
	return mux
}

func say(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, text) })
}

// authenticate puts the user into the request's context. It accepts any password,
// because it is a demo.
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
