package main

import (
	"context"
	_ "embed"
	"fmt"
	"math"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/coreaccess"
	"github.com/redislimit/redislimit/internal/inside"
)

//go:embed lease.svg.tmpl
var leaseTemplate string

// The picture of leases has columns of 50 ms. Its scale shows rates up to a little more than the limit's.
const (
	leaseLasts  = 4 * time.Second
	leaseColumn = 50 * time.Millisecond
	leaseRate   = 1000
	leaseHigh   = 1.5 // height of one request in a column, in pixels
	leaseDeep   = 0.3 // height of one unit of a lease, in pixels
)

// A leasing is one process of the picture. It has a clock of its own.
type leasing struct {
	name          string
	rate          int // requests per second
	begins, stops time.Duration

	*core.Limiter

	clock           time.Duration
	left            int64 // units left on its lease
	decided, remote int   // decisions, and how many of them Redis made
	line            path
}

// leaseColumns has the number of requests in each column: admitted from leases, admitted by Redis, and denied.
type leaseColumns [leaseLasts / leaseColumn]struct{ leased, remote, denied int }

type leaseFigure struct {
	Title, Desc   string
	Columns       []figureText // Text is the height, and Class says which requests are counted
	Levels        []figureText
	Rows          []leaseRow
	Ticks         []figureText
	Height, Frame int
}

type leaseRow struct {
	Y           int
	Name, Says  string
	Area, Curve string
}

// drawLease lets three processes make requests for one key, which together are more than its limit.
func drawLease(ctx context.Context, w *environment) (string, error) {
	all := []*leasing{
		{name: "A", rate: 700, stops: leaseLasts},
		{name: "B", rate: 700, begins: 800 * time.Millisecond, stops: 3200 * time.Millisecond},
		{name: "C", rate: 300, begins: 1600 * time.Millisecond, stops: leaseLasts},
	}
	for _, p := range all {
		if err := p.start(w); err != nil {
			return "", err
		}
	}
	if err := all[0].Reset(ctx, key); err != nil {
		return "", err
	}
	defer func() {
		for _, p := range all {
			_ = p.Close()
		}
		_ = all[0].Reset(context.WithoutCancel(ctx), key)
	}()
	var columns leaseColumns
	for now := time.Duration(0); now < leaseLasts; now += time.Millisecond {
		for _, p := range all {
			if err := p.act(ctx, now, &columns); err != nil {
				return "", err
			}
		}
		w.advance(time.Millisecond)
	}
	return execute(leaseTemplate, leaseFigureOf(all, columns))
}

func (p *leasing) start(w *environment) error {
	clocks := coreaccess.Simulation{Leases: func() (wall, mono time.Duration) { return p.clock, p.clock }}
	lim, err := core.New(w.client, "story-lease", inside.Core.Simulate(clocks), core.TokenBucket(core.PerSecond(leaseRate)), core.Lease(200*time.Millisecond),
		core.Prefix("rl-pictures"), core.DenyCache(0), core.FailClosed(), core.Timeout(time.Minute),
		core.Observe(func(_ context.Context, e core.Event) {
			if e.Kind == core.EventLease {
				p.draw()
				p.left = max(0, e.Cost)
				p.draw()
			}
		}))
	if err != nil {
		return err
	}
	p.Limiter = lim
	return nil
}

// act runs the process for one millisecond.
func (p *leasing) act(ctx context.Context, now time.Duration, columns *leaseColumns) error {
	p.clock = now
	if now == p.begins {
		p.draw()
	}
	if now == p.stops {
		if err := p.Close(); err != nil {
			return err
		}
	}
	if now < p.begins || now >= p.stops {
		return nil
	}
	inside.Core.Driver(p.Limiter).CloseOld()
	count := func(at time.Duration) int { return int(int64(p.rate) * at.Milliseconds() / 1000) }
	for range count(now+time.Millisecond) - count(now) {
		res, err := p.Allow(ctx, key)
		if err != nil {
			return err
		}
		column := &columns[now/leaseColumn]
		p.decided++
		switch {
		case res.Source == core.SourceLease:
			p.left--
			column.leased++
		case res.Allowed:
			p.remote++
			column.remote++
		default:
			p.remote++
			column.denied++
		}
	}
	return nil
}

// draw adds the units that are left now to the line, if the difference is visible.
func (p *leasing) draw() {
	next := point{leaseX(p.clock), -leaseDeep * float64(p.left)}
	if n := len(p.line); n == 0 || math.Hypot(next.x-p.line[n-1].x, next.y-p.line[n-1].y) > 0.8 {
		p.line = p.line.to(next.x, next.y)
	}
}

func leaseX(at time.Duration) float64 { return plotLeft + plotWidth*at.Seconds()/leaseLasts.Seconds() }

func leaseFigureOf(all []*leasing, columns leaseColumns) leaseFigure {
	f := leaseFigure{Title: "Three processes and one limit"}
	zero, admitted, denied := 268.0, 0, 0
	for i, c := range columns {
		y := zero
		for _, part := range []struct {
			class string
			n     int
		}{{"leased", c.leased}, {"asked", c.remote}, {"refused", c.denied}} {
			if part.n > 0 {
				high := leaseHigh * float64(part.n)
				y -= high
				f.Columns = append(f.Columns, figureText{
					X: pixels(leaseX(time.Duration(i) * leaseColumn)), Y: pixels(y), Text: pixels(high), Class: part.class,
				})
			}
		}
		admitted, denied = admitted+c.leased+c.remote, denied+c.denied
	}
	rate := leaseRate * leaseColumn.Seconds()
	f.Levels = []figureText{
		{Class: "axis", Y: pixels(zero), Text: pixels(zero + 5), Name: "0"},
		{Class: "top", Y: pixels(zero - leaseHigh*rate), Text: pixels(zero - leaseHigh*rate + 5), Name: fmt.Sprint(rate)},
	}
	y := int(zero) + 38
	f.Desc = fmt.Sprintf("%d requests are admitted and %d denied.", admitted, denied)
	for _, p := range all {
		y += 66
		row := leaseRow{
			Y: y, Name: p.name, Says: fmt.Sprintf("%d decisions, %d asked Redis", p.decided, p.remote),
			Curve: p.line.String(), Area: p.line.above(0),
		}
		f.Rows = append(f.Rows, row)
		f.Desc += fmt.Sprintf(" %s: %s.", p.name, row.Says)
	}
	for at := time.Duration(0); at <= leaseLasts; at += time.Second {
		f.Ticks = append(f.Ticks, tickAt(leaseX(at), at, leaseLasts, float64(y)+19))
	}
	f.Height = y + 36
	f.Frame = f.Height - 1
	return f
}
