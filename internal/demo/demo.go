// Package demo runs the playground: flags, the connection to Redis, starting and
// stopping. The other examples are to be copied, and so have that in their main.go.
package demo

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/demo/embedded"
)

// An App is a demo that is about to serve.
type App struct {
	Addr     string                // where to listen
	Redis    redis.UniversalClient // of the -redis flag, or the embedded one
	Embedded bool                  // Redis is the embedded one

	close []func() error
}

// open reads the flags and opens Redis. It writes to out which Redis it uses. The
// caller closes the App.
func (d Demo) open(args []string, out io.Writer) (*App, error) {
	app := &App{}
	flags := flag.NewFlagSet(d.Name, flag.ContinueOnError)
	flags.SetOutput(out)
	if d.Flags != nil {
		d.Flags(flags)
	}
	flags.StringVar(&app.Addr, "addr", "127.0.0.1:8080", "address to listen on")
	redisURL := flags.String("redis", os.Getenv("REDIS_URL"),
		"redis:// or rediss:// URL; several addr parameters mean a Cluster, master_name a Sentinel; default $REDIS_URL, else an embedded Redis")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("%q is not a flag; -help lists the flags", flags.Arg(0))
	}
	if err := app.connect(*redisURL, out); err != nil {
		_ = app.Close() // the first error is the cause
		return nil, err
	}
	return app, nil
}

func (a *App) connect(redisURL string, out io.Writer) error {
	if redisURL == "" {
		server, err := embedded.Start()
		if errors.Is(err, embedded.ErrBits) {
			return fmt.Errorf("%w: give its URL with -redis", err)
		}
		if err != nil {
			return fmt.Errorf("starting the embedded redis: %w", err)
		}
		a.close = append(a.close, func() error { server.Close(); return nil })
		redisURL, a.Embedded = "redis://"+server.Addr(), true
		_, _ = fmt.Fprintln(out, "No -redis given: using an embedded Redis (miniredis) in this process. Its counts end with it.")
	}
	client, err := newClient(redisURL)
	if err != nil {
		return fmt.Errorf("-redis: %w", err)
	}
	a.close = append(a.close, client.Close)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := client.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("-redis: no answer: %w", err)
	}
	a.Redis = client
	return nil
}

// newClient makes the client that the URL describes, as go-redis parses it.
func newClient(redisURL string) (redis.UniversalClient, error) {
	u, err := url.Parse(redisURL)
	if err != nil || !strings.Contains(redisURL, "://") {
		return nil, errors.New("not a URL such as redis://localhost:6379") // err would show the password
	}
	switch query := u.Query(); {
	case query.Has("master_name"):
		options, err := redis.ParseFailoverURL(redisURL)
		if err != nil {
			return nil, err
		}
		return redis.NewFailoverClient(options), nil
	case query.Has("addr"):
		options, err := redis.ParseClusterURL(redisURL)
		if err != nil {
			return nil, err
		}
		return redis.NewClusterClient(options), nil
	}
	options, err := redis.ParseURL(redisURL)
	if err != nil {
		return nil, err
	}
	return redis.NewClient(options), nil
}

// Close closes what open opened.
func (a *App) Close() error {
	var errs []error
	for _, end := range slices.Backward(a.close) {
		errs = append(errs, end())
	}
	a.close = nil
	return errors.Join(errs...)
}
