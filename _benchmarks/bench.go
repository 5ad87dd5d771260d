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

// A benchmark measures cells, one after the other, on a single Redis server or on a Cluster.
type benchmark struct {
	config

	server     *server
	cluster    []*server // started for the first cell that needs it
	proxy      *proxy
	processes  []*process // with the callers of every contender; empty if this process has them
	contenders []*contender
	tracks     []*track
	decided    map[decidedKey]bool // see decideOnce
	progress   io.Writer
}

// config is what the flags choose.
type config struct {
	cells  []cell
	rounds int
	slice  time.Duration
}

// result is the outcome of measuring one cell.
type result struct {
	cell   cell
	all    []*summary
	others float64 // the CPU share of other processes meanwhile, in percent of the machine
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

// measure runs the rounds of a cell. In each round, every contender is measured for one slice. The order is
// random, so that other load on the machine affects all contenders alike.
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

// load returns the CPU time that the machine and the processes of the benchmark have used so far.
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

// servers returns the Redis servers of a cell, and starts the Cluster when the first cell needs it.
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

// addrs returns the addresses that the clients of a cell connect to: the servers, or a proxy that adds latency.
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

// ready makes a contender's limiter, whose calls go through far, and verifies its decisions. Before that, it
// makes the decisions that are needed once for each key, through near, where no latency is added: in a cell
// of denials, they use up the limits.
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
		if err := b.decideOnce(ctx, in, r.keys, lim); err != nil {
			return nil, err
		}
	}
	var err error
	if r.limiter, err = c.make(&setup{in, far, in.limit(), c.id}); err != nil {
		return nil, err
	}
	return r, r.verify(ctx)
}

// decideOnce makes one decision for each key, unless it did for an earlier cell. That uses up a scarce limit.
func (b *benchmark) decideOnce(ctx context.Context, in cell, keys []string, lim limiter) error {
	const callers = 16
	var running sync.WaitGroup
	var next atomic.Int64
	errs := make(chan error, callers)
	for range callers {
		running.Go(func() {
			attempt := lim()
			for i := next.Add(1) - 1; i < int64(len(keys)); i = next.Add(1) - 1 {
				if b.decided[decidedKey{keys[i], in.cluster}] {
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
		b.decided[decidedKey{key, in.cluster}] = true
	}
	return <-errs
}

// A decidedKey is a key for which decideOnce has made a decision, on the server or on the Cluster.
type decidedKey struct {
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
