package main

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// If the environment variable processEnv has the address of Redis, this program is one of several processes with
// callers. It carries out the orders that it reads, one after the other, and writes an account of each.
const processEnv = "REDISLIMIT_BENCH_PROCESS"

// A process is one of several processes with callers.
type process struct {
	*child

	orders  *gob.Encoder
	reports *gob.Decoder
}

// An order describes one task of a process: to call a contender in a cell, or to take part in a contest.
type order struct {
	Contender int
	Callers   int
	Keys      int
	Scenario  string
	Zipf      float64
	For       time.Duration

	Contest *contest
}

// An account is the result of an order.
type account struct {
	Err                         string
	Decisions, Allowed, Excused int
	Took                        time.Duration
	Latencies                   *hdrhistogram.Snapshot
	Mallocs                     uint64
	CPU                         float64

	Events []event // the decisions of a contest
}

func startProcesses(ctx context.Context, n int, addr string) ([]*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var all []*process
	for range n {
		cmd := exec.CommandContext(ctx, self)
		cmd.Env = append(os.Environ(), processEnv+"="+addr)
		cmd.Stderr = os.Stderr
		in, err1 := cmd.StdinPipe()
		out, err2 := cmd.StdoutPipe()
		if err := errors.Join(err1, err2); err != nil {
			return all, err
		}
		c, err := spawn(cmd)
		if err != nil {
			return all, err
		}
		all = append(all, &process{c, gob.NewEncoder(in), gob.NewDecoder(out)})
	}
	return all, nil
}

// together sends an order to all processes, and returns their accounts. They carry it out at the same time.
func together(all []*process, o order) ([]account, error) {
	for _, p := range all {
		if err := p.orders.Encode(o); err != nil {
			return nil, err
		}
	}
	accounts := make([]account, len(all))
	for i, p := range all {
		if err := p.reports.Decode(&accounts[i]); err != nil {
			return nil, fmt.Errorf("a process has ended: %w", err)
		}
		if accounts[i].Err != "" {
			return nil, errors.New(accounts[i].Err)
		}
	}
	return accounts, nil
}

// measureProcesses is like measure, but the callers are in other processes.
func (r *runner) measureProcesses(ctx context.Context, m *meter, d time.Duration) (*slice, error) {
	o := order{
		Contender: r.id, Callers: r.cell.callers, Keys: r.cell.keys, Scenario: r.cell.scenario, Zipf: r.cell.zipf, For: d / 4,
	}
	if _, err := together(r.processes, o); err != nil {
		return nil, err
	}
	before, err := m.read(ctx)
	if err != nil {
		return nil, err
	}
	o.For = d
	accounts, err := together(r.processes, o)
	if err != nil {
		return nil, err
	}
	after, err := m.readBack(ctx)
	if err != nil {
		return nil, err
	}
	s := &slice{track: track{latencies: hdrhistogram.New(1, slowest, 2)}, used: after.since(before).withOwn(usage{})}
	for _, a := range accounts {
		s.decisions += a.Decisions
		s.allowed += a.Allowed
		s.excused += a.Excused
		s.took = max(s.took, a.Took)
		s.used.mallocs += a.Mallocs
		s.used.clientCPU += a.CPU
		s.latencies.Merge(hdrhistogram.Import(a.Latencies))
	}
	return s, r.check(s)
}

// serveProcess is the main loop of a process with callers. It returns when there are no more orders.
func serveProcess(addr string) error {
	in, out := gob.NewDecoder(os.Stdin), gob.NewEncoder(os.Stdout)
	w := &worker{addr: addr, contenders: contenders()}
	for {
		var o order
		if err := in.Decode(&o); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		a, err := w.carryOut(o)
		if err != nil {
			a.Err = err.Error()
		}
		if err := out.Encode(a); err != nil {
			return err
		}
	}
}

// A worker carries out the orders of a process with callers.
type worker struct {
	addr       string
	contenders []*contender

	cell    cell // of the last order
	clients *clients
	runners map[int]*runner // in this cell, by contender
	tracks  []*track
}

func (w *worker) carryOut(o order) (account, error) {
	if o.Contest != nil {
		return o.Contest.run(w.addr)
	}
	c := cell{callers: o.Callers, keys: o.Keys, scenario: o.Scenario, zipf: o.Zipf}
	if w.runners == nil || w.cell != c {
		w.enter(c)
	}
	r := w.runners[o.Contender]
	if r == nil {
		r = &runner{contender: w.contenders[o.Contender], cell: c}
		r.keys = r.keysOf()
		var err error
		if r.limiter, err = r.make(&setup{c, w.clients, c.limit(), r.id}); err != nil {
			return account{}, err
		}
		w.runners[o.Contender] = r
	}
	attempts := make([]decide, c.callers)
	for i := range attempts {
		attempts[i] = r.limiter()
	}
	for _, t := range w.tracks {
		t.latencies.Reset()
		*t = track{latencies: t.latencies}
	}
	runtime.GC()
	before, start := ownUsage(), time.Now()
	r.drive(context.Background(), attempts, w.tracks, o.For)
	took, used := time.Since(start), ownUsage().since(before)
	s := merge(w.tracks)
	a := account{
		Decisions: s.decisions, Allowed: s.allowed, Excused: s.excused, Took: took, Latencies: s.latencies.Export(),
		Mallocs: used.mallocs, CPU: used.clientCPU,
	}
	return a, s.err
}

// enter prepares the worker for another cell.
func (w *worker) enter(c cell) {
	if w.runners != nil {
		w.clients.close()
	}
	w.cell, w.clients, w.runners, w.tracks = c, connect(c, w.addr), map[int]*runner{}, newTracks(c.callers)
}
