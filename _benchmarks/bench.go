package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// A benchmark measures cells, one after the other, on one Redis, or one Cluster.
type benchmark struct {
	config

	server     *server
	cluster    []*server // started for the first cell that needs it
	proxy      *proxy
	processes  []*process // with the callers; none: this one
	contenders []*contender
	tracks     []*track
	asked      map[asked]bool
	progress   io.Writer
}

// config is what the flags set.
type config struct {
	cells  []cell
	rounds int
	slice  time.Duration
}

// result is what was measured in a cell.
type result struct {
	cell   cell
	all    []*summary
	others float64 // the share of the machine's CPU that other processes took meanwhile, in percent
}

// run measures all cells and calls done with the result of each.
func (b *benchmark) run(ctx context.Context, done func(result)) error {
	for i, c := range b.cells {
		_, _ = fmt.Fprintf(b.progress, "%d of %d: %s\n", i+1, len(b.cells), c)
		r, err := b.measure(ctx, c)
		if err != nil {
			return err
		}
		done(r)
	}
	return nil
}

// measure runs the rounds of a cell. Each round has a slice of every contender, in a
// random order, so that other load on the machine affects all of them alike.
func (b *benchmark) measure(ctx context.Context, c cell) (result, error) {
	servers, err := b.servers(ctx, c)
	if err != nil {
		return result{}, err
	}
	addrs, err := b.addrs(ctx, c, servers)
	if err != nil {
		return result{}, err
	}
	far := connect(c, addrs...)
	defer far.close()
	near := connect(c, addrsOf(servers)...)
	defer near.close()
	meter := newMeter(servers)
	defer meter.close()
	var runners []*runner
	for _, contender := range b.contenders {
		if contender.only != nil && !contender.only(c) {
			continue
		}
		r, err := b.ready(ctx, contender, c, near, far)
		if err != nil {
			return result{}, fmt.Errorf("%s: %s: %w", c, contender.name, err)
		}
		runners = append(runners, r)
	}
	before := b.load(servers)
	rounds := make([]round, b.rounds)
	for n := range rounds {
		rounds[n] = make(round, len(runners))
		for _, i := range rand.Perm(len(runners)) {
			s, err := runners[i].measure(ctx, meter, b.tracks, b.slice)
			if ctx.Err() != nil {
				return result{}, ctx.Err()
			}
			if err != nil {
				return result{}, err
			}
			for _, m := range metrics() {
				rounds[n][i] = append(rounds[n][i], m.of(s))
			}
		}
	}
	return result{c, summarize(runners, rounds), b.load(servers).others(before)}, nil
}

// load returns the CPU time that the machine and our processes have used so far.
func (b *benchmark) load(servers []*server) load {
	var pids []int
	for _, s := range servers {
		pids = append(pids, s.cmd.Process.Pid)
	}
	if b.proxy != nil {
		pids = append(pids, b.proxy.cmd.Process.Pid)
	}
	for _, p := range b.processes {
		pids = append(pids, p.cmd.Process.Pid)
	}
	return loadOf(pids...)
}

// servers returns the servers of a cell.
func (b *benchmark) servers(ctx context.Context, c cell) ([]*server, error) {
	if !c.cluster {
		return []*server{b.server}, nil
	}
	var err error
	if b.cluster == nil {
		b.cluster, err = startCluster(ctx)
	}
	return b.cluster, err
}

// addrs returns the addresses that the clients of a cell connect to.
func (b *benchmark) addrs(ctx context.Context, c cell, servers []*server) ([]string, error) {
	if c.latency == 0 {
		return addrsOf(servers), nil
	}
	if b.proxy != nil && b.proxy.latency == c.latency {
		return []string{b.proxy.addr}, nil
	}
	if b.proxy != nil {
		b.proxy.kill()
	}
	var err error
	b.proxy, err = startProxy(ctx, b.server.addr, c.latency)
	if err != nil {
		return nil, err
	}
	return []string{b.proxy.addr}, nil
}

func addrsOf(servers []*server) []string {
	var addrs []string
	for _, s := range servers {
		addrs = append(addrs, s.addr)
	}
	return addrs
}

// ready makes a contender's limiter over far and verifies its decisions. What is to be done
// once for each key comes before, over near, without latency: where the cell is about
// denials, that uses up the limits.
func (b *benchmark) ready(ctx context.Context, c *contender, in cell, near, far *clients) (*runner, error) {
	r := &runner{contender: c, cell: in, processes: b.processes}
	r.keys = r.keysOf()
	first := c.first
	if in.scenario == denied && c.limits {
		first = c.make
	}
	if first != nil {
		lim, err := first(&setup{in, near, in.limit(), c.id})
		if err != nil {
			return nil, err
		}
		if err := b.askOnce(ctx, in, r.keys, lim); err != nil {
			return nil, err
		}
	}
	var err error
	if r.limiter, err = c.make(&setup{in, far, in.limit(), c.id}); err != nil {
		return nil, err
	}
	return r, r.verify(ctx)
}

// askOnce asks for each key that was not asked for in an earlier cell. This uses up a scarce limit.
func (b *benchmark) askOnce(ctx context.Context, in cell, keys []string, lim limiter) error {
	const callers = 16
	var running sync.WaitGroup
	var next atomic.Int64
	errs := make(chan error, callers)
	for range callers {
		running.Go(func() {
			attempt := lim()
			for i := next.Add(1) - 1; i < int64(len(keys)); i = next.Add(1) - 1 {
				if b.asked[asked{keys[i], in.cluster}] {
					continue
				}
				if _, err := attempt(ctx, keys[i]); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	running.Wait()
	close(errs)
	for _, key := range keys {
		b.asked[asked{key, in.cluster}] = true
	}
	return <-errs
}

// asked is a key that was asked for before an earlier cell, on the server or on the Cluster.
type asked struct {
	key     string
	cluster bool
}

// verify makes a few decisions, one after the other, before anything is timed.
func (r *runner) verify(ctx context.Context) error {
	attempt := r.limiter()
	s := &slice{}
	for i := range 100 {
		allowed, err := attempt(ctx, r.keys[i*len(r.keys)/100])
		if err != nil {
			return err
		}
		s.decisions++
		if allowed {
			s.allowed++
		}
	}
	return r.check(s)
}
