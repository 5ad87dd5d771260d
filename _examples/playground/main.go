// Command playground shows on one page how the algorithms answer the same
// traffic, live, with real limiters. Without -redis it starts an embedded Redis, so
// that "go run ./_examples/playground" needs nothing else.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/demo/embedded"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("playground: ")
	addr := flag.String("addr", "127.0.0.1:8080", "`address` to listen on")
	redisURL := flag.String("redis", os.Getenv("REDIS_URL"), "redis:// or rediss:// `URL`; several addr parameters mean a Cluster,\n"+
		"master_name a Sentinel; default $REDIS_URL, else an embedded Redis")
	inBrowser := flag.Bool("open", false, "open the page in the browser")
	flag.Parse()
	if flag.NArg() > 0 {
		log.Fatalf("%q is not a flag; -help lists the flags", flag.Arg(0))
	}
	page, err := newPlayground(open(*redisURL))
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err, "; choose another address, such as -addr 127.0.0.1:8081")
	}
	given, _, _ := net.SplitHostPort(*addr)
	name, _ := os.Hostname()
	host, port, _ := net.SplitHostPort(listener.Addr().String()) // a TCP address can be split
	if net.ParseIP(host).IsUnspecified() {
		host = "localhost" // not all clients can connect to [::]
	}
	at := "http://" + net.JoinHostPort(host, port) + "/"
	fmt.Printf("Listening on %s, try:\n  %s in a browser\n  curl -N %sevents\n", strings.TrimSuffix(at, "/"), at, at)
	if *inBrowser {
		openBrowser(at)
	}
	if err := serveUntilSignal(listener, noNames(page.routes(), given, name)); err != nil {
		log.Fatal(err)
	}
}

// open connects to the Redis at a URL. If the URL is empty, it returns nil: each page then has an
// embedded Redis of its own, which the page can stop.
func open(redisURL string) (client redis.UniversalClient) {
	if redisURL == "" {
		must(embedded.Start()).Close() // checks that it can run here
		fmt.Println("No -redis given: using an embedded Redis (miniredis) in this process. Its counts end with it.")
		return nil
	}
	u, err := url.Parse(redisURL)
	if err != nil || !strings.Contains(redisURL, "://") {
		log.Fatal("-redis: not a URL such as redis://localhost:6379") // err would show the password
	}
	switch query := u.Query(); {
	case query.Has("master_name"):
		client = redis.NewFailoverClient(must(redis.ParseFailoverURL(redisURL)))
	case query.Has("addr"):
		client = redis.NewClusterClient(must(redis.ParseClusterURL(redisURL)))
	default:
		client = redis.NewClient(must(redis.ParseURL(redisURL)))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	must(client.Ping(ctx).Result())
	return client
}

// must returns v, or ends the program with err, which is about -redis.
func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal("-redis: ", err)
	}
	return v
}

// serveUntilSignal serves until SIGINT or SIGTERM, and then lets requests in flight finish. It does not wait for streams and for
// requests that a leaky bucket holds, because they would take too long.
func serveUntilSignal(l net.Listener, handler http.Handler) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second, BaseContext: func(net.Listener) context.Context { return ctx }}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	shutdown, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return server.Shutdown(shutdown)
}

// say prints an error that does not end the program.
func say(err error) {
	if err != nil {
		log.Print(err)
	}
}
