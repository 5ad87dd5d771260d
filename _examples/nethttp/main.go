// Command nethttp serves three rate-limited routes with net/http. Without -redis
// it brings its own Redis, so that "go run ./_examples/nethttp" is all it takes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redislimit/redislimit/internal/demo"
	"github.com/redislimit/redislimit/keyfunc"
	httplimit "github.com/redislimit/redislimit/nethttp"
)

func main() {
	app, err := demo.Start("nethttp", os.Args[1:], os.Stdout)
	if err == nil {
		err = errors.Join(serve(app), app.Close())
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "nethttp:", err)
		os.Exit(1)
	}
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
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintln(w, text)
	})
}

// authenticate puts the user into the request's context. It is a demo: any
// password will do.
func authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, _, ok := r.BasicAuth()
		if !ok || user == "" {
			w.Header().Set("WWW-Authenticate", `Basic realm="demo"`)
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, user)))
	})
}

// serve serves until SIGINT or SIGTERM, and then lets running requests end.
func serve(app *demo.App) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	listener, err := net.Listen("tcp", app.Addr)
	if err != nil {
		return err
	}
	demo.Greet(os.Stdout, listener.Addr().String())

	server := &http.Server{Handler: routes(app), ReadHeaderTimeout: 5 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	shutdown, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return server.Shutdown(shutdown)
}
