package demo

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
)

// A Server is a web application of some framework. An http.Server is one.
type Server interface {
	Serve(l net.Listener) error
	Shutdown(ctx context.Context) error
}

// Main runs the example called name, whose server build makes, until SIGINT or
// SIGTERM; requests under way may end.
func Main(name string, build func(app *App) Server) {
	app, err := Start(name, os.Args[1:], os.Stdout)
	if err == nil {
		err = errors.Join(serve(app.Addr, build(app)), app.Close())
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, name+":", err)
		os.Exit(1)
	}
}

// HTTPServer returns a Server for frameworks whose application is an http.Handler.
func HTTPServer(h http.Handler) Server {
	return &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
}

func serve(addr string, server Server) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(os.Stdout, `Listening on http://%[1]s, try:
  curl -i http://%[1]s/
  curl -i -u alice:any http://%[1]s/user
  curl -i -H 'X-API-Key: demo-key-1' http://%[1]s/key
`, listener.Addr())

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
