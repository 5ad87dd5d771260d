// Path runs one operation of the library and prints which functions it entered. It prints a line for each entry, with
// the numbers of the goroutine and of the function. Weight builds this program with an instrumented copy of the library,
// and starts it with the name of the operation.
package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/demo/embedded"
	"github.com/redislimit/redislimit/internal/tools/weight/trace"
)

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// patience is the longest wait for something that happens in the background.
const patience = 20 * time.Second

func run(name string) error {
	server, err := embedded.Start()
	if err != nil {
		return err
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	opts := []core.Option{
		core.TokenBucket(core.PerHour(1_000_000)), core.Logger(slog.New(slog.DiscardHandler)),
		core.Timeout(time.Minute), // calls share a timer, which must not be renewed during the operation
	}
	ended := make(chan struct{}, 1)
	switch name {
	case "lease":
		opts = append(opts, core.Lease(time.Second)) // the lease must not end during the operation
	case "outage":
		opts = append(opts, core.Observe(func(_ context.Context, e core.Event) {
			if e.Kind == core.EventFallbackOff {
				ended <- struct{}{}
			}
		}))
	}
	limiter, err := core.New(client, "path", opts...)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background()) // like the context of a request
	defer cancel()

	allow := func(want core.Source) func() error {
		return func() error {
			res, err := limiter.Allow(ctx, "k")
			if err == nil && res.Source != want {
				err = fmt.Errorf("%s: decided by %v, want %v", name, res.Source, want)
			}
			return err
		}
	}
	reserve := func() error {
		r, err := limiter.Reserve(ctx, "k", 2)
		if err != nil {
			return err
		}
		return r.Settle(ctx, 1)
	}
	warm, operation := allow(core.SourceRedis), allow(core.SourceRedis)
	switch name {
	case "allow":
	case "reserve":
		warm, operation = reserve, reserve
	case "lease": // decide until the key is used so often that it gets a lease
		operation = allow(core.SourceLease)
		warm = func() error {
			for begun := time.Now(); operation() != nil; {
				if time.Since(begun) > patience {
					return fmt.Errorf("lease: no lease within %v", patience)
				}
			}
			return nil
		}
	case "outage": // stop the server, make two decisions without it, start it, and wait until it decides again
		operation = func() error {
			server.Close()
			if err := cmp.Or(allow(core.SourceFallback)(), allow(core.SourceFallback)(), server.Restart()); err != nil {
				return err
			}
			select {
			case <-ended:
				return allow(core.SourceRedis)()
			case <-time.After(patience):
				return fmt.Errorf("outage: it did not end within %v", patience)
			}
		}
	default:
		return fmt.Errorf("no path %q", name)
	}
	if err := errors.Join(warm(), warm()); err != nil {
		return err
	}
	time.Sleep(100 * time.Millisecond) // time for the background work of the warm-up to end
	trace.Start()
	err = operation()
	out := bufio.NewWriter(os.Stdout)
	for _, e := range trace.Stop() {
		_, _ = fmt.Fprintln(out, e.Goroutine, e.Function)
	}
	return errors.Join(err, out.Flush())
}
