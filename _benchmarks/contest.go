package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
)

// In a contest, callers in several processes make requests for one key at random times, at a rate below or
// above its limit. The contest shows how many requests are denied too early: the limit would admit them, but
// its units are leased to other processes.
type contest struct {
	Name    string
	Window  bool          // a fixed window instead of a token bucket
	Lease   time.Duration // 0: none
	Rate    int64         // units per second
	Burst   int64         // of the token bucket
	Load    float64       // requests in proportion to Rate
	Callers int           // in each process
	Of      int           // number of processes
	For     time.Duration
}

// An event is one decision. At is when it was made, in microseconds by the clock of Redis.
type event struct {
	At      int64
	Allowed bool
	Leased  bool
}

// contestWarmUp is the time at the beginning whose decisions are not counted.
const contestWarmUp = 500 * time.Millisecond

func (c *contest) limit() core.Limit {
	if c.Window {
		return core.FixedWindow(core.PerSecond(c.Rate), core.Aligned())
	}
	return core.TokenBucket(core.PerSecond(c.Rate), core.Burst(c.Burst))
}

// run makes the requests of one process, and returns the decisions.
func (c *contest) run(addr string) (account, error) {
	rdb := redis.NewClient(&redis.Options{Addr: addr, PoolSize: c.Callers + 1, ContextTimeoutEnabled: true})
	defer func() { _ = rdb.Close() }()
	opts := []core.Option{c.limit(), core.FailClosed(), core.Timeout(10 * time.Second), core.DenyCache(0)}
	if c.Lease > 0 {
		opts = append(opts, core.Lease(c.Lease))
	}
	lim, err := core.New(rdb, c.Name, opts...)
	if err != nil {
		return account{}, err
	}
	defer func() { _ = lim.Close() }()
	var running sync.WaitGroup
	events, errs := make([][]event, c.Callers), make([]error, c.Callers)
	gap := float64(time.Second) * float64(c.Callers*c.Of) / (c.Load * float64(c.Rate))
	start := time.Now()
	end := start.Add(c.For + contestWarmUp)
	for i := range c.Callers {
		running.Go(func() {
			due := start.Add(time.Duration(rand.Float64() * gap))
			for ; due.Before(end) && errs[i] == nil; due = due.Add(time.Duration(rand.ExpFloat64() * gap)) {
				time.Sleep(time.Until(due))
				var res core.Result
				if res, errs[i] = lim.Allow(context.Background(), "k"); errs[i] == nil {
					events[i] = append(events[i], event{res.At.UnixMicro(), res.Allowed, res.Source == core.SourceLease})
				}
			}
		})
	}
	running.Wait()
	for _, err := range errs {
		if err != nil {
			return account{}, err
		}
	}
	return account{Events: slices.Concat(events...)}, nil
}

// An outcome counts the decisions of a contest. early counts the requests that were denied although a single
// process would have admitted them, if it got the same requests in the same order. would counts all requests
// that it would have admitted.
type outcome struct{ requests, admitted, leased, denied, early, would int }

// judge counts the events of all processes.
func (c *contest) judge(events []event) outcome {
	slices.SortStableFunc(events, func(a, b event) int {
		if byTime := cmp.Compare(a.At, b.At); byTime != 0 || a.Allowed == b.Allowed {
			return byTime
		}
		if a.Allowed {
			return -1 // within a microsecond, allowed decisions come first
		}
		return 1
	})
	exact := &exactLimit{contest: c, last: events[0].At}
	var o outcome
	for _, e := range events {
		admits := exact.admits(e.At)
		if e.At-events[0].At < contestWarmUp.Microseconds() {
			continue
		}
		o.requests++
		if admits {
			o.would++
		}
		switch {
		case e.Allowed && e.Leased:
			o.leased++
			o.admitted++
		case e.Allowed:
			o.admitted++
		case admits:
			o.early++
			o.denied++
		default:
			o.denied++
		}
	}
	return o
}

// An exactLimit decides as the limit of a contest does in one process without leases.
type exactLimit struct {
	*contest

	used int64 // in microseconds that a bucket takes to drain it
	last int64
}

func (x *exactLimit) admits(at int64) bool {
	const second = 1_000_000
	unit, capacity := second/x.Rate, x.Burst*(second/x.Rate)
	if x.Window {
		capacity = second
		if at/second != x.last/second {
			x.used = 0
		}
	} else {
		x.used = max(0, x.used-(at-x.last))
	}
	x.last = at
	if x.used+unit > capacity {
		return false
	}
	x.used += unit
	return true
}

// contests runs the contests, and writes a table of how many requests are denied too early.
func (b *benchmark) contests(ctx context.Context, w io.Writer, processes int, d time.Duration) error {
	const callers, rate = 64, 5000
	_, _ = fmt.Fprintf(w, "\n### %d processes of %d callers, 1 key, %s units a second\n\n"+
		"| limit | asked for | admitted | one process would admit | from leases | denied too early | other processes' CPU |\n|---|%s\n",
		processes, callers, grouped(rate), strings.Repeat("--:|", 6))
	for _, window := range []bool{false, true} {
		for _, load := range []float64{0.5, 0.9, 1.1, 1.5} {
			for _, lease := range []time.Duration{0, 100 * time.Millisecond} {
				c := &contest{
					Name:   fmt.Sprintf("c%v-%d-%d", window, int(100*load), lease),
					Window: window, Lease: lease, Rate: rate, Burst: rate / 10, Load: load, Callers: callers, Of: processes, For: d,
				}
				if err := b.hold(c, w); err != nil || ctx.Err() != nil {
					return err
				}
			}
		}
	}
	return nil
}

// hold runs one contest, and writes its row of the table.
func (b *benchmark) hold(c *contest, w io.Writer) error {
	before := b.load([]*server{b.server})
	accounts, err := together(b.processes, order{Contest: c})
	if err != nil {
		return err
	}
	others := b.load([]*server{b.server}).others(before)
	var events []event
	for _, a := range accounts {
		events = append(events, a.Events...)
	}
	if len(events) == 0 {
		return fmt.Errorf("%s: no decisions", c.Name)
	}
	o := c.judge(events)
	_, _ = fmt.Fprintf(w, "| %s | %.0f %% | %s | %s | %s | %s | %.0f %% |\n", c.title(), 100*c.Load, percent(o.admitted, o.requests),
		percent(o.would, o.requests), percent(o.leased, o.admitted), percent(o.early, o.requests), others)
	return nil
}

func (c *contest) title() string {
	title := fmt.Sprintf("TokenBucket, burst %d", c.Burst)
	if c.Window {
		title = "FixedWindow"
	}
	if c.Lease > 0 {
		title += fmt.Sprintf(", Lease(%v)", c.Lease)
	}
	return title
}

func percent(part, whole int) string {
	if whole == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f %%", 100*float64(part)/float64(whole))
}
