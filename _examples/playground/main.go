// Command playground shows on one page how the algorithms answer the same
// traffic, live, from real limiters. Without -redis it starts an embedded Redis, so
// that "go run ./_examples/playground" needs nothing else.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"

	"github.com/redislimit/redislimit/internal/demo"
)

func main() {
	open := false
	demo.Demo{
		Name: "playground",
		Flags: func(flags *flag.FlagSet) {
			flags.BoolVar(&open, "open", false, "open the page in the browser")
		},
		Build: build,
		Try: func(addr string) string {
			url := "http://" + addr + "/"
			if open {
				openBrowser(url)
			}
			return fmt.Sprintf("  %s in a browser\n  curl -N %sevents\n", url, url)
		},
	}.Main()
}

// build makes the server. When a shutdown begins, it cancels the streams and the
// requests that a leaky bucket holds: they would last longer than the shutdown waits.
func build(app *demo.App) (demo.Server, error) {
	client := app.Redis
	if app.Embedded {
		client = nil // each page has one of its own, which it can stop
	}
	page, err := newPlayground(client)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	server := demo.HTTPServer(page.routes())
	server.BaseContext = func(net.Listener) context.Context { return ctx }
	server.RegisterOnShutdown(cancel)
	return server, nil
}

// say prints an error that does not end the program.
func say(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "playground:", err)
	}
}
