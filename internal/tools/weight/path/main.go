// Path runs one operation of the library, and writes which of its statements that took: built with -cover
// -covermode=atomic, started by weight with the operation's name and a folder.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime/coverage"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/demo/embedded"
)

func main() {
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

const leases = 100 * time.Millisecond

func run(name, dir string) error {
	server, err := embedded.Start()
	if err != nil {
		return err
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	opts := []core.Option{
		core.TokenBucket(core.PerHour(1_000_000)), core.Logger(slog.New(slog.DiscardHandler)),
		core.Timeout(time.Minute), // calls share a timer, which is not to be made anew meanwhile
	}
	if name == "lease" {
		opts = append(opts, core.Lease(leases))
	}
	limiter, err := core.New(client, "path", opts...)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background()) // as that of a request
	defer cancel()

	from := func(want core.Source) error {
		for begun := time.Now(); time.Since(begun) < 10*time.Second; {
			if res, err := limiter.Allow(ctx, "k"); err == nil && res.Source == want {
				return nil
			}
		}
		return fmt.Errorf("%s: no decision from %v within 10 s", name, want)
	}
	reserve := func() error {
		r, err := limiter.Reserve(ctx, "k", 2)
		if err != nil {
			return err
		}
		return r.Settle(ctx, 1)
	}
	before := func() error { return from(core.SourceRedis) }
	var operation func() error
	switch name {
	case "allow":
		operation = func() error { _, err := limiter.Allow(ctx, "k"); return err }
	case "reserve":
		before, operation = reserve, reserve
	case "lease": // the lease before has ended: it is settled, and the next is taken
		before = func() error { err := from(core.SourceLease); time.Sleep(leases); return err }
		operation = func() error { return from(core.SourceLease) }
	case "outage":
		operation = func() error {
			server.Close()
			return cmp.Or(from(core.SourceFallback), server.Restart(), from(core.SourceRedis))
		}
	default:
		return fmt.Errorf("no path %q", name)
	}
	if err := cmp.Or(before(), before(), coverage.ClearCounters(), operation()); err != nil {
		return err
	}
	return cmp.Or(coverage.WriteCountersDir(dir), coverage.WriteMetaDir(dir))
}
