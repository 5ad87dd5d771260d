package main

import (
	"cmp"
	_ "embed"
	"fmt"
	"math"
	"slices"
	"strings"
	"text/template"
)

//go:embed chart.svg.tmpl
var chartTemplate string

// The measures of the chart, in pixels.
const (
	rowHeight  = 24
	rowsTop    = 112
	leftStart  = 310 // of the bars of throughput
	leftWidth  = 226
	rightStart = 606 // of the bars of latency
	rightWidth = 206
)

// A chart is what the template draws.
type chart struct {
	Rows    []chartRow
	Ticks   []tick
	Height  int
	Bottom  int // of the rows
	Machine machine
	GoRedis string
	Best    string // the description, for screen readers
}

// A chartRow is one contender: its throughput to the left, its latency to the
// right.
type chartRow struct {
	Name, Kind       string
	Y                int
	Ratio, P50       string
	RatioBar, P50Bar string
	RatioEnd, P50End string
}

// A tick is a line across the bars of throughput.
type tick struct{ X, Class string }

// charted are the contenders that the chart shows, under the names of docs/performance.md:
// those that one chooses between, and not every variant.
var charted = map[string]string{
	incr:                     incr,
	"TokenBucket, coalesced": "TokenBucket",
	"ulule/limiter":          "ulule/limiter",
	"redis_rate":             "redis_rate",
	"throttled":              "throttled",
	"fiber limiter":          "Fiber's limiter",
	"go-chi/httprate":        "httprate",
}

// A standing is a contender's figures in the two cells of the chart.
type standing struct {
	*contender

	ratio, p50 float64
}

// draw makes the chart: throughput at 64 callers as a share of raw INCR, and the
// median latency of a single caller.
func draw(m machine, results []result) (string, error) {
	all := standings(results)
	if len(all) == 0 {
		return "", errNoChart
	}
	most, slowestP50 := 1.0, 0.0
	for _, s := range all {
		most, slowestP50 = max(most, s.ratio), max(slowestP50, s.p50)
	}
	c := chart{Machine: m, GoRedis: m.Modules["github.com/redis/go-redis/v9"], Best: description(all)}
	for i, s := range all {
		left, right := leftWidth*s.ratio/most, rightWidth*s.p50/slowestP50
		c.Rows = append(c.Rows, chartRow{
			Name: charted[s.name], Kind: string(s.kind), Y: rowsTop + i*rowHeight,
			Ratio: fmt.Sprintf("%.2f", s.ratio), P50: fmt.Sprintf("%.0f µs", s.p50),
			RatioBar: pixels(left), P50Bar: pixels(right),
			RatioEnd: pixels(leftStart + left + 6), P50End: pixels(rightStart + right + 6),
		})
	}
	c.Bottom = rowsTop + len(all)*rowHeight
	c.Height = c.Bottom + 58
	c.Ticks = ticks(most)
	var b strings.Builder
	err := template.Must(template.New("chart").Parse(chartTemplate)).Execute(&b, c)
	return b.String(), err
}

// standings returns the charted contenders that are in both cells, the fastest first.
func standings(results []result) []standing {
	many, one := find(results, 64), find(results, 1)
	rate, p50 := metricIndex("rate"), metricIndex("p50_us")
	var all []standing
	for _, m := range many {
		for _, o := range one {
			if o.name == m.name && charted[m.name] != "" && !math.IsNaN(m.toIncr[rate]) {
				all = append(all, standing{m.contender, m.toIncr[rate], o.value[p50]})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b standing) int { return cmp.Compare(b.ratio, a.ratio) })
	return all
}

func find(results []result, callers int) []*summary {
	for _, r := range results {
		if r.cell == (cell{callers: callers, keys: 10_000, scenario: admitted}) {
			return r.all
		}
	}
	return nil
}

func metricIndex(id string) int {
	return slices.IndexFunc(metrics(), func(m metric) bool { return m.id == id })
}

// description is the first thing that the chart shows, as a sentence.
func description(all []standing) string {
	best := map[kind]string{}
	for _, s := range all {
		if best[s.kind] == "" {
			best[s.kind] = fmt.Sprintf("%s with %.2f times the decisions a second of raw INCR", charted[s.name], s.ratio)
		}
	}
	return fmt.Sprintf("At 64 callers, the first of this library is %s; of its peers, %s.", best[ours], best[peer])
}

// ticks returns a line at 1, the throughput of raw INCR, and at other round ratios.
func ticks(most float64) []tick {
	step := 0.25
	for most/step > 6 {
		step *= 2
	}
	var all []tick
	for v := 0.0; v <= most; v += step {
		t := tick{X: pixels(leftStart + leftWidth*v/most), Class: "grid"}
		if v == 1 { // steps are powers of two: exact
			t.Class = "incr"
		}
		all = append(all, t)
	}
	return all
}

func pixels(v float64) string { return fmt.Sprintf("%.1f", v) }
