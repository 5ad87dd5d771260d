package main

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/limits"
)

//go:embed overview.svg.tmpl
var overviewTemplate string

// The overview shows the time from 8.5 to 30 seconds. Each stack of marks is half a second wide.
const (
	overviewFrom = 8500 * time.Millisecond
	overviewTo   = 30 * time.Second
	stack        = 500 * time.Millisecond
	stackLeft    = 226.0
	stackRight   = 502.0
	stackStep    = 6.8
	overviewRow  = 90
)

type overview struct {
	Title, Desc   string
	Count         string // number of the algorithms
	Left, Right   string
	Rows          []overviewRowData
	Ticks         []figureText
	Height, Frame int
}

type overviewRowData struct {
	Y, NameY int
	Name     string
	Notes    []figureText
	Bounds   []string
	Marks    []figureMark
}

// A subject is what the overview writes about one algorithm.
type subject struct {
	name, hint string
	burst      int64
	bound      bool // its windows end at multiples of the period
}

// overviewOf returns what the overview writes about v.
func overviewOf(v limits.Variant) subject {
	s := described()[v.Kind].overview
	s.name = limits.Constructor(v.Kind)
	if s.burst > 0 {
		s.name += fmt.Sprintf(", Burst(%d)", s.burst)
	}
	return s
}

// inWords returns a small number as a word.
func inWords(n int) string {
	words := strings.Fields("no one two three four five six seven eight nine ten eleven twelve")
	if n < len(words) {
		return words[n]
	}
	return fmt.Sprint(n)
}

// drawOverview sends the same traffic to all algorithms: ten requests in the second before a boundary, ten in the
// second after it, and later two per second.
func drawOverview(ctx context.Context, w *environment) (string, error) {
	ms := time.Millisecond
	traffic := slices.Concat(every(100*ms, 9050*ms, 10), every(100*ms, 10050*ms, 10), every(500*ms, 12250*ms, 36))
	rate := core.Per(10, period)
	o := overview{Left: pixels(stackLeft), Right: pixels(stackRight), Desc: "The same requests come to each: ten in the second before 10 s, ten in the second after, and from 12 s on two a second."}
	y := 118
	o.Rows = append(o.Rows, overviewRowData{Y: y, NameY: -24, Name: "The traffic", Notes: []figureText{{Y: "-5", Name: "two bursts, then steady"}}})
	for _, at := range traffic {
		o.Rows[0].mark("came", at, -1)
	}
	y -= 24 // nothing is drawn below the traffic
	for _, v := range limits.Aligned() {
		each := overviewOf(v)
		r, err := w.play(ctx, scenario{limit: v.With(rate, limits.Settings{Burst: each.burst}), cost: 1, traffic: traffic, lasts: overviewTo})
		if err != nil {
			return "", err
		}
		y += overviewRow
		row := overviewRowData{Y: y, NameY: -24, Name: each.name}
		if each.hint != "" {
			row.Notes = []figureText{{Y: "-5", Name: each.hint}}
		}
		if each.bound {
			row.Bounds = []string{pixels(stackX(10 * time.Second)), pixels(stackX(20 * time.Second))}
		}
		row.draw(r)
		o.Rows = append(o.Rows, row)
		o.Desc += fmt.Sprintf(" %s serves %d in its busiest 2 s and %d in its busiest 10 s.", each.name,
			r.busiest(2*time.Second), r.busiest(period))
	}
	y += overviewRow/2 + 10
	for at := 10 * time.Second; at <= overviewTo; at += 5 * time.Second {
		o.Ticks = append(o.Ticks, tickAt(stackX(at), at, overviewTo, float64(y)))
	}
	o.Height, o.Frame = y+18, y+17
	o.Count = inWords(len(o.Rows) - 1)
	o.Title = strings.ToUpper(o.Count[:1]) + o.Count[1:] + " algorithms under the same traffic, 10 requests per 10 s"
	return execute(overviewTemplate, o)
}

func (o *overviewRowData) draw(r *record) {
	for i, within := range []time.Duration{2 * time.Second, period} {
		o.Notes = append(o.Notes, figureText{
			Y: fmt.Sprint(14 + 18*i), Name: fmt.Sprintf("busiest %g s:", within.Seconds()), Text: fmt.Sprint(r.busiest(within)),
		})
	}
	for _, m := range r.requests {
		if m.Allowed {
			o.mark("in", m.served(), -1)
		} else {
			o.mark("out", m.at, 1)
		}
	}
}

// mark adds a mark to the stack of the half second that it belongs to, above or below the axis.
func (o *overviewRowData) mark(kind string, at time.Duration, side float64) {
	if at >= overviewTo {
		return
	}
	middle := at.Truncate(stack) + stack/2
	m := figureMark{Kind: kind, X: pixels(stackX(middle))}
	high := 0
	for _, other := range o.Marks {
		if other.X == m.X && strings.HasPrefix(other.Y, "-") == (side < 0) {
			high++
		}
	}
	m.Y = pixels(side * (5 + stackStep*float64(high)))
	o.Marks = append(o.Marks, m)
}

func stackX(at time.Duration) float64 {
	return stackLeft + (stackRight-stackLeft)*(at-overviewFrom).Seconds()/(overviewTo-overviewFrom).Seconds()
}
