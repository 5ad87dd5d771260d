// Command playground shows on one page how the six algorithms answer the same
// traffic, live, from real limiters. Without -redis it brings its own Redis, so
// that "go run ./_examples/playground" is all it takes.
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

// build makes the server. Streams, and requests that a leaky bucket holds, would
// outlast a shutdown: they end when it begins.
func build(app *demo.App) (demo.Server, error) {
	page, err := newPlayground(app.Redis)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	server := demo.HTTPServer(page.routes())
	server.BaseContext = func(net.Listener) context.Context { return ctx }
	server.RegisterOnShutdown(cancel)
	return server, nil
}

// say tells the user something that is no reason to end.
func say(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "playground:", err)
	}
}
