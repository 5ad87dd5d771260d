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

// Sizes in the chart, in pixels.
const (
	rowHeight = 24
	rowsTop   = 112
	barWidth  = 160 // the longest bar of a panel
	barGap    = 6   // between a bar and its figure
)

// The chart has three panels: for a few callers, where a client that pipelines by itself can be ahead, for
// many callers, and for a single one.
const (
	fewCallers  = 8
	manyCallers = 64
)

// A chart is the data of the template.
type chart struct {
	Panels  []panel
	Rows    []chartRow
	Height  int
	Bottom  int // where the rows end
	Machine machine
	GoRedis string
	Best    string // the description, for screen readers
}

// A panel has a bar for each contender.
type panel struct {
	X           int
	Title, Note string
	Ticks       []tick
}

// A tick is a line across the bars of a panel.
type tick struct{ X, Class string }

// A chartRow is one contender.
type chartRow struct {
	Name, Kind string
	Y          int
	Bars       []bar
}

// A bar is a contender's figure in a panel.
type bar struct {
	X                int
	Width, End, Text string
}

// charted are the contenders that the chart shows, under the names that docs/performance.md uses. It leaves out
// variants that users do not choose between.
var charted = map[string]string{
	incr:                        incr,
	"raw INCR, rueidis":         "raw INCR, rueidis",
	"raw INCR, AutoPipeline":    "raw INCR, AutoPipeline",
	"TokenBucket, coalesced":    "TokenBucket",
	"rueidislimiter, rewritten": "rueidislimiter, rewritten",
	"redis_rate, AutoPipeline":  "redis_rate, AutoPipeline",
	"ulule/limiter":             "ulule/limiter",
	"redis_rate":                "redis_rate",
	"throttled":                 "throttled",
	"fiber limiter":             "Fiber's limiter",
	"go-chi/httprate":           "httprate",
}

// A standing has the figures of one contender in the cells of the chart.
type standing struct {
	*contender

	few, many, p50 float64
}

// draw makes the chart. It shows the throughput with few and with many callers in proportion to raw INCR, and
// the median latency of a single caller.
func draw(m machine, results []result) (string, error) {
	all := standings(results)
	if len(all) == 0 {
		return "", errNoChart
	}
	most, slowest := 1.0, 0.0
	for _, s := range all {
		most, slowest = max(most, s.few, s.many), max(slowest, s.p50)
	}
	const few, many, one = 200, 415, 636 // where the panels begin
	const times = "raw INCR = 1; longer is better"
	c := chart{
		Machine: m, GoRedis: m.Modules["github.com/redis/go-redis/v9"], Best: description(all),
		Bottom: rowsTop + len(all)*rowHeight, Panels: []panel{
			{few, fmt.Sprintf("Decisions/s, %d callers", fewCallers), times, ticks(few, most)},
			{many, fmt.Sprintf("Decisions/s, %d callers", manyCallers), times, ticks(many, most)},
			{one, "Median latency, 1 caller", "shorter is better", []tick{{pixels(one), "grid"}}},
		},
	}
	c.Height = c.Bottom + 58
	for i, s := range all {
		c.Rows = append(c.Rows, chartRow{charted[s.name], string(s.kind), rowsTop + i*rowHeight, []bar{
			barOf(few, s.few/most, fmt.Sprintf("%.2f", s.few)), barOf(many, s.many/most, fmt.Sprintf("%.2f", s.many)),
			barOf(one, s.p50/slowest, fmt.Sprintf("%.0f µs", s.p50)),
		}})
	}
	var b strings.Builder
	err := template.Must(template.New("chart").Parse(chartTemplate)).Execute(&b, c)
	return b.String(), err
}

func barOf(x int, share float64, text string) bar {
	width := barWidth * share
	return bar{x, pixels(width), pixels(float64(x) + width + barGap), text}
}

// standings returns the charted contenders that took part in all cells of the chart. The one with the highest
// throughput with many callers comes first.
func standings(results []result) []standing {
	rate, p50 := metricIndex("rate"), metricIndex("p50_us")
	var all []standing
	for _, many := range find(results, manyCallers) {
		few, one := summaryOf(many.name, find(results, fewCallers)), summaryOf(many.name, find(results, 1))
		if few != nil && one != nil && charted[many.name] != "" && !math.IsNaN(many.toIncr[rate]) {
			all = append(all, standing{many.contender, few.toIncr[rate], many.toIncr[rate], one.value[p50]})
		}
	}
	slices.SortStableFunc(all, func(a, b standing) int { return cmp.Compare(b.many, a.many) })
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

func summaryOf(name string, all []*summary) *summary {
	if i := slices.IndexFunc(all, func(s *summary) bool { return s.name == name }); i >= 0 {
		return all[i]
	}
	return nil
}

func metricIndex(id string) int {
	return slices.IndexFunc(metrics(), func(m metric) bool { return m.id == id })
}

// description says in words what the chart shows first.
func description(all []standing) string {
	return fmt.Sprintf("At %d callers, %s At %d callers, %s",
		manyCallers, first(all, func(s standing) float64 { return s.many }), fewCallers, first(all, func(s standing) float64 { return s.few }))
}

// first names the faster one of this library's fastest contender and the fastest peer, and their ratio.
func first(all []standing, ratio func(standing) float64) string {
	best := map[kind]standing{}
	for _, s := range all {
		if b, ok := best[s.kind]; !ok || ratio(s) > ratio(b) {
			best[s.kind] = s
		}
	}
	say := func(k kind) string {
		if s, ok := best[k]; ok {
			return fmt.Sprintf("%s with %.2f times the decisions a second of raw INCR", charted[s.name], ratio(s))
		}
		return "none"
	}
	return fmt.Sprintf("the first of this library is %s; of its peers, %s.", say(ours), say(peer))
}

// ticks returns a line at 1, which is the throughput of raw INCR, and lines at other round ratios.
func ticks(x int, most float64) []tick {
	step := 0.25
	for most/step > 6 {
		step *= 2
	}
	var all []tick
	for v := 0.0; v <= most; v += step {
		t := tick{X: pixels(float64(x) + barWidth*v/most), Class: "grid"}
		if v == 1 { // exact, because the steps are powers of two
			t.Class = "incr"
		}
		all = append(all, t)
	}
	return all
}

func pixels(v float64) string { return fmt.Sprintf("%.1f", v) }
