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

// A contest has callers in several processes ask for one key, at random, more or less often
// than its limit admits. It shows how many are denied too early: although the limit admits
// them, because units are out on leases in other processes.
type contest struct {
	Name    string
	Window  bool          // a fixed window instead of a token bucket
	Lease   time.Duration // 0: none
	Rate    int64         // units a second
	Burst   int64         // of the bucket
	Load    float64       // how much of that is asked for
	Callers int           // in each of so many
	Of      int           // processes
	For     time.Duration
}

// An event is a decision: when it was made, in microseconds by the clock of Redis, and how.
type event struct {
	At      int64
	Allowed bool
	Leased  bool
}

// contestWarmUp is what is not counted at the beginning.
const contestWarmUp = 500 * time.Millisecond

func (c *contest) limit() core.Limit {
	if c.Window {
		return core.FixedWindow(core.PerSecond(c.Rate), core.Aligned())
	}
	return core.TokenBucket(core.PerSecond(c.Rate), core.Burst(c.Burst))
}

// run makes the requests of one process.
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

// An outcome counts the decisions of a contest. Early are those that were denied, although
// one process that decides on the same requests in the same order admits them.
type outcome struct{ requests, admitted, leased, denied, early, would int }

// judge counts them.
func (c *contest) judge(events []event) outcome {
	slices.SortStableFunc(events, func(a, b event) int {
		if byTime := cmp.Compare(a.At, b.At); byTime != 0 || a.Allowed == b.Allowed {
			return byTime
		}
		if a.Allowed {
			return -1 // of the same microsecond
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

// An exactLimit is the limit of a contest, without leases.
type exactLimit struct {
	*contest

	used int64 // in microseconds in which a bucket drains it
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

// contests writes a table of how many are denied too early.
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

// hold holds a contest, and writes its row of the table.
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
