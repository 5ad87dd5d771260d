// Command _benchmarks compares redislimit with other libraries. It measures them alternately, in one run on one
// Redis. See README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	if order := os.Getenv(proxyEnv); order != "" {
		fail(serveProxy(order))
	}
	if addr := os.Getenv(processEnv); addr != "" {
		if err := serveProcess(addr); err != nil {
			fail(err)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := program(ctx, os.Args[1:])
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fail(err)
	}
}

var errInterrupted = errors.New("interrupted")

func fail(err error) {
	fmt.Fprintln(os.Stderr, "benchmarks:", err)
	os.Exit(1)
}

// program runs the benchmarks that the arguments choose.
func program(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	srv, err := startServer(ctx)
	if err != nil {
		return err
	}
	defer srv.stop()
	b := &benchmark{
		config: o.config, server: srv, contenders: o.contenders,
		tracks: newTracks(o.mostCallers()), decided: map[decidedKey]bool{}, progress: os.Stderr,
	}
	defer func() {
		if b.proxy != nil {
			b.proxy.kill()
		}
		for _, s := range b.cluster {
			s.stop()
		}
	}()
	if o.processes > 1 {
		defer func() {
			for _, p := range b.processes {
				p.kill()
			}
		}()
		if b.processes, err = startProcesses(ctx, o.processes, srv.addr); err != nil {
			return err
		}
	}
	m := thisMachine(srv)
	began := time.Now()
	m.write(os.Stdout, o)
	if o.early {
		if err := b.contests(ctx, os.Stdout, o.processes, 20*o.slice); err != nil && ctx.Err() == nil {
			return err
		}
	}
	var results []result
	if err := b.run(ctx, func(r result) {
		writeTable(os.Stdout, r)
		results = append(results, r)
	}); err != nil {
		if ctx.Err() != nil {
			return errInterrupted // an interruption also causes other errors
		}
		return err
	}
	_, _ = fmt.Fprintf(os.Stderr, "done in %v\n", time.Since(began).Round(time.Second))
	return o.save(m, results)
}
