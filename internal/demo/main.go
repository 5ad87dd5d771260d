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

// A Server is a web application of any framework. An http.Server is one.
type Server interface {
	Serve(l net.Listener) error
	Shutdown(ctx context.Context) error
}

// A Demo is an example app.
type Demo struct {
	Name  string
	Flags func(*flag.FlagSet)        // adds flags to -addr and -redis; may be nil
	Build func(*App) (Server, error) // makes its server
	Try   func(addr string) string   // returns lines with commands to try, for a server at addr
}

// Main runs the demo until SIGINT or SIGTERM, and then lets requests in flight finish.
func (d Demo) Main() {
	if err := d.run(os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, d.Name+":", err)
		os.Exit(1)
	}
}

func (d Demo) run(args []string) error {
	app, err := d.open(args, os.Stdout)
	if err != nil {
		return err
	}
	server, err := d.Build(app)
	if err == nil {
		err = d.serve(app.Addr, server)
	}
	return errors.Join(err, app.Close())
}

// HTTPServer returns a Server for frameworks whose application is an http.Handler.
func HTTPServer(h http.Handler) *http.Server {
	return &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
}

func (d Demo) serve(addr string, server Server) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("%w; choose another address, such as -addr 127.0.0.1:8081", err)
	}
	at := reachable(listener.Addr())
	_, _ = fmt.Fprintf(os.Stdout, "Listening on http://%s, try:\n%s", at, d.Try(at))

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

// reachable returns host and port of a listener's address for clients on this machine:
// not all of them can connect to an unspecified address, such as [::].
func reachable(addr net.Addr) string {
	host, port, err := net.SplitHostPort(addr.String())
	if err != nil || !net.ParseIP(host).IsUnspecified() {
		return addr.String()
	}
	return net.JoinHostPort("localhost", port)
}
