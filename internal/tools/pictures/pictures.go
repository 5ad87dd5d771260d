package main

import (
	"slices"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/testkit/limits"
)

// A picture shows one algorithm, in panels one below the other. Each panel is a run.
type picture struct {
	file  string
	title string
	says  []string // below the title
	panel []panel
}

// A panel is one run, and how its level is drawn.
type panel struct {
	scenario scenario
	label    string // above the curve: what it shows
	top      string // the label of the capacity line
	room     float64
	unit     string // of the numbers at the axis, which are requests times scale
	scale    float64
	level    func(m moment) float64            // in requests
	falls    bool                              // the level is what is left, and a request takes it down
	under    func(r *record, m moment) float64 // part of the level, in requests
	spans    func(r *record) []span            // below the axis
}

// A span is a stretch of time with a name.
type span struct {
	from, to time.Duration
	name     string
}

// In the pictures a request costs a thousand units, so that Remaining, which is in
// whole units, has a resolution of a thousandth of a request.
const grain = 1000

var (
	fivePerTen = core.Per(5*grain, 10*time.Second)
	period     = 10 * time.Second
)

// traffic of the pictures: a burst just before ten seconds, one just after, and
// then twice what the limit allows.
func traffic() []time.Duration {
	ms := time.Millisecond
	return slices.Concat(every(500*ms, 7600*ms, 5), every(500*ms, 10100*ms, 6), every(time.Second, 14*time.Second, 16))
}

// standard returns the scenario of the pictures of single algorithms.
func standard(limit core.Limit) scenario {
	return scenario{limit: limit, cost: grain, traffic: traffic(), lasts: 30 * time.Second}
}

func used(m moment) float64 { return float64(m.Limit-m.Remaining) / grain }

func left(m moment) float64 { return float64(m.Remaining) / grain }

// ahead is the time from now to the theoretical arrival time, in requests.
func ahead(m moment) float64 { return m.ResetAfter.Seconds() / 2 }

// pictures returns a picture of every registered algorithm.
func pictures() []picture {
	var all []picture
	known := described()
	for _, v := range limits.Plain() {
		p, ok := known[v.Kind]
		if !ok {
			p = undescribed(v)
		}
		p.file = v.Name + ".svg"
		all = append(all, p)
	}
	return all
}

// undescribed returns the picture of an algorithm for which described has none.
func undescribed(v limits.Variant) picture {
	return picture{
		title: limits.Constructor(v.Kind) + ", 5 per 10 s",
		says:  []string{"Two bursts, and then twice what the limit allows."},
		panel: []panel{{scenario: standard(v.Limit(fivePerTen)), label: "Used", room: 5, top: "limit 5", scale: 1, level: used}},
	}
}

// described returns the pictures that show what is special about their algorithm.
func described() map[*algorithm.Kind]picture {
	plain := panel{room: 5, top: "limit 5", unit: "", scale: 1, level: used}
	with := func(p panel, change func(p *panel)) panel { change(&p); return p }
	return map[*algorithm.Kind]picture{
		algorithm.FixedWindow: {
			title: "FixedWindow, 5 per 10 s",
			says:  []string{"Counts from 0 in each window. Two bursts on either", "side of a boundary both pass: 10 within 5 s."},
			panel: []panel{
				with(plain, func(p *panel) {
					p.scenario, p.label, p.spans = standard(core.FixedWindow(fivePerTen, core.Aligned())), "Aligned(): windows by the clock", openWindows
				}),
				with(plain, func(p *panel) {
					p.scenario, p.label, p.spans = standard(core.FixedWindow(fivePerTen)), "Default: opened by a request", openWindows
				}),
			},
		},
		algorithm.SlidingWindowLog: {
			title: "SlidingWindowLog, 5 per 10 s",
			says:  []string{"Remembers each admitted request for 10 s. In no 10 s,", "wherever they begin, does it admit more than 5."},
			panel: []panel{with(plain, func(p *panel) {
				p.scenario, p.label, p.spans = standard(core.SlidingWindowLog(fivePerTen)), "Requests in the last 10 s", oneEntry
			})},
		},
		algorithm.SlidingWindowCounter: {
			title: "SlidingWindowCounter, 5 per 10 s",
			says:  []string{"Adds to this window's count a share of the window", "before it, which fades as this one goes on."},
			panel: []panel{with(plain, func(p *panel) {
				p.scenario, p.label, p.spans = standard(core.SlidingWindowCounter(fivePerTen)), "Weighted count", alignedWindows
				p.under = sinceBoundary
			})},
		},
		algorithm.TokenBucket: {
			title: "TokenBucket, 5 per 10 s",
			says:  []string{"A request takes a token; one comes back every 2 s.", "A burst passes after a rest, and then the rate."},
			panel: []panel{with(plain, func(p *panel) {
				p.scenario, p.label, p.level, p.falls = standard(core.TokenBucket(fivePerTen)), "Tokens in the bucket", left, true
				p.top = "full, 5"
			})},
		},
		algorithm.LeakyBucket: {
			title: "LeakyBucket, 5 per 10 s, Burst(5)",
			says:  []string{"Admitted requests queue, and one leaves every 2 s.", "However they come, they are served at an even pace."},
			panel: []panel{with(plain, func(p *panel) {
				p.scenario, p.label = standard(core.LeakyBucket(fivePerTen, core.Burst(5*grain))), "Requests in the queue"
				p.top = "queue full, 5"
			})},
		},
		algorithm.GCRA: {
			title: "GCRA, 5 per 10 s, Burst(3)",
			says:  []string{"Keeps one instant, the TAT, which a request moves on by", "2 s. Admits as a token bucket does; here 3 at once."},
			panel: []panel{with(plain, func(p *panel) {
				p.scenario, p.label, p.level = standard(core.GCRA(fivePerTen, core.Burst(3*grain))), "How far the TAT is ahead of now", ahead
				p.room, p.top, p.unit, p.scale = 3, "at most 3 × 2 s", " s", 2
			})},
		},
	}
}

// sinceBoundary returns how many requests were admitted in the aligned window of m, up
// to m.
func sinceBoundary(r *record, m moment) float64 {
	n := 0.0
	for _, other := range r.requests {
		before := other.At.Before(m.At) || other == m
		if other.Allowed && before && other.at >= m.at.Truncate(period) {
			n++
		}
	}
	return n
}

// openWindows returns the windows that admitted requests were counted in.
func openWindows(r *record) []span {
	var all []span
	for _, m := range r.requests {
		end := m.at + m.ResetAfter
		if !m.Allowed || len(all) > 0 && all[len(all)-1].to == end {
			continue
		}
		all = append(all, span{end - m.Window, end, "window"})
	}
	return all
}

func alignedWindows(*record) []span {
	return []span{{0, period, "window"}, {period, 2 * period, "window"}, {2 * period, 3 * period, "window"}}
}

// oneEntry returns the time for which the first request counts.
func oneEntry(r *record) []span {
	first := r.requests[0]
	return []span{{first.at, first.at + first.ResetAfter, "counts for 10 s"}}
}
