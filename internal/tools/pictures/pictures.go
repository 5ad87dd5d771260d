package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/testkit/limits"
)

// A picture shows one algorithm, in panels that are placed one below the other. Each panel shows one run.
type picture struct {
	file  string
	title string
	says  []string // the lines below the title
	panel []panel

	overview subject // its line in the overview
}

// A panel is a run, and describes how its level is drawn.
type panel struct {
	scenario scenario
	label    string // the caption above the curve
	top      string // the label of the capacity line
	room     float64
	unit     string // of the numbers on the axis, which are requests multiplied by scale
	scale    float64
	level    func(m moment) float64            // in requests
	falls    bool                              // the level is what is left, so each request lowers it
	under    func(r *record, m moment) float64 // the part of the level that is drawn in another shade, in requests
	spans    func(r *record) []span            // drawn below the axis
}

// A span is a named stretch of time.
type span struct {
	from, to time.Duration
	name     string
}

// In the pictures, a request costs a thousand units. Remaining counts whole units, so it has a resolution of a
// thousandth of a request.
const grain = 1000

var (
	fivePerTen = core.Per(5*grain, 10*time.Second)
	period     = 10 * time.Second
)

// traffic returns the requests of the pictures: a burst just before ten seconds, another one just after, and
// then twice as many as the limit allows.
func traffic() []time.Duration {
	ms := time.Millisecond
	return slices.Concat(every(500*ms, 7600*ms, 5), every(500*ms, 10100*ms, 6), every(time.Second, 14*time.Second, 16))
}

// standard returns the scenario that the pictures of single algorithms use.
func standard(limit core.Limit) scenario {
	return scenario{limit: limit, cost: grain, traffic: traffic(), lasts: 30 * time.Second}
}

func used(m moment) float64 { return float64(m.Limit-m.Remaining) / grain }

func left(m moment) float64 { return float64(m.Remaining) / grain }

// ahead is the time from now to the theoretical arrival time, expressed in requests.
func ahead(m moment) float64 { return m.ResetAfter.Seconds() / 2 }

// pictures returns one picture for every registered algorithm.
func pictures() ([]picture, error) {
	var all []picture
	known := described()
	for _, v := range limits.Plain() {
		p, ok := known[v.Kind]
		if !ok {
			return nil, fmt.Errorf("no picture of %s is described", v.Name)
		}
		p.file = v.Name + ".svg"
		for i := range p.panel { // what the pictures have in common
			each := &p.panel[i]
			each.room, each.scale, each.top = cmp.Or(each.room, 5), cmp.Or(each.scale, 1), cmp.Or(each.top, "limit 5")
			if each.level == nil {
				each.level = used
			}
		}
		all = append(all, p)
	}
	return all, nil
}

// described returns what is special about the picture of each algorithm.
func described() map[*algorithm.Kind]picture {
	return map[*algorithm.Kind]picture{
		algorithm.FixedWindow: {
			overview: subject{hint: "both bursts pass", bound: true},
			title:    "FixedWindow, 5 per 10 s",
			says:     []string{"Counts from 0 in each window. Two bursts on either", "side of a boundary both pass: 10 within 5 s."},
			panel: []panel{
				{scenario: standard(core.FixedWindow(fivePerTen, core.Aligned())), label: "Aligned(): windows by the clock", spans: openWindows},
				{scenario: standard(core.FixedWindow(fivePerTen)), label: "Default: opened by a request", spans: openWindows},
			},
		},
		algorithm.SlidingWindowLog: {
			overview: subject{hint: "never over 10 in 10 s"},
			title:    "SlidingWindowLog, 5 per 10 s",
			says:     []string{"Remembers each admitted request for 10 s. In no 10 s,", "wherever they begin, does it admit more than 5."},
			panel:    []panel{{scenario: standard(core.SlidingWindowLog(fivePerTen)), label: "Requests in the last 10 s", spans: oneEntry}},
		},
		algorithm.SlidingWindowCounter: {
			overview: subject{hint: "the first burst fades", bound: true},
			title:    "SlidingWindowCounter, 5 per 10 s",
			says:     []string{"Adds to this window's count a share of the window", "before it, which fades as this one goes on."},
			panel: []panel{{
				scenario: standard(core.SlidingWindowCounter(fivePerTen)), label: "Weighted count", spans: alignedWindows, under: sinceBoundary,
			}},
		},
		algorithm.TokenBucket: {
			overview: subject{hint: "a burst, then the rate"},
			title:    "TokenBucket, 5 per 10 s",
			says:     []string{"A request takes a token; one comes back every 2 s.", "A burst passes after a rest, and then the rate."},
			panel: []panel{{
				scenario: standard(core.TokenBucket(fivePerTen)), label: "Tokens in the bucket", level: left, falls: true, top: "full, 5",
			}},
		},
		algorithm.LeakyBucket: {
			overview: subject{hint: "each waits for its turn", burst: 5},
			title:    "LeakyBucket, 5 per 10 s, Burst(5)",
			says:     []string{"Admitted requests queue, and one leaves every 2 s.", "However they come, they are served at an even pace."},
			panel: []panel{{
				scenario: standard(core.LeakyBucket(fivePerTen, core.Burst(5*grain))), label: "Requests in the queue", top: "queue full, 5",
			}},
		},
		algorithm.GCRA: {
			overview: subject{hint: "as TokenBucket"},
			title:    "GCRA, 5 per 10 s, Burst(3)",
			says:     []string{"Keeps one instant, the TAT, which a request moves on by", "2 s. Admits as a token bucket does; here 3 at once."},
			panel: []panel{{
				scenario: standard(core.GCRA(fivePerTen, core.Burst(3*grain))), label: "How far the TAT is ahead of now", level: ahead,
				room: 3, top: "at most 3 × 2 s", unit: " s", scale: 2,
			}},
		},
	}
}

// sinceBoundary returns how many requests were admitted in the aligned window that contains m, up to m.
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

// openWindows returns the windows in which admitted requests were counted.
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

// oneEntry returns the time during which the first request counts.
func oneEntry(r *record) []span {
	first := r.requests[0]
	return []span{{first.at, first.at + first.ResetAfter, "counts for 10 s"}}
}
