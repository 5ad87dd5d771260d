package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/limittest"
)

// slots is the number of parts into which the pictures divide the time of a log.
const slots = 120

// An analysis is everything that is shown about a log.
type analysis struct {
	*traffic

	deny   float64 // the percentage for which the smallest limits are searched
	top    int     // how many of the most denied keys are shown
	limits []judged
	came   [slots]int64 // how many requests came in each part of the time
}

// A judged limit describes what one limit would have done to the requests of the log.
type judged struct {
	limittest.Report

	limit      core.Limit
	period     time.Duration
	keysDenied int          // how many keys were denied something
	denied     [slots]int64 // how many requests were denied in each part of the time
	busiest    []int64      // the most units that each key used within a period of the limit
	sorted     []int64      // the same numbers, in order

	byRequests, byKeys found // the smallest limits of this kind that deny little
}

func analyse(t *traffic, c config, p *progress) (*analysis, error) {
	a := &analysis{traffic: t, deny: c.deny, top: c.top, limits: make([]judged, len(c.limits))}
	options := make([]core.Option, len(c.limits))
	for i, l := range c.limits {
		j := &a.limits[i]
		j.limit, j.period = l, l.Rate().Period()
		options[i] = core.Options(l, core.Observe(func(_ context.Context, e core.Event) {
			if !e.Result.Allowed {
				j.denied[a.slot(e.Result.At.UnixMicro())]++
			}
		}))
	}
	for _, r := range t.requests {
		a.came[a.slot(r.at)]++
	}
	reports, err := limittest.Replay(t.arrivals(t.requests, func(done int) {
		p.say("replaying", float64(done)/float64(len(t.requests)))
	}), options...)
	if err != nil {
		return nil, err
	}
	for i, report := range reports {
		j := &a.limits[i]
		j.Report, j.keysDenied = report, keysDenied(report)
		j.busiest = t.busiest(j.period)
		j.sorted = slices.Sorted(slices.Values(j.busiest))
		s := newSearch(t, j.limit, p)
		share := c.deny / 100
		if j.byRequests, err = s.smallest(func(o outcome) bool { return float64(o.denied) < share*float64(len(t.requests)) }); err != nil {
			return nil, err
		}
		if j.byKeys, err = s.smallest(func(o outcome) bool { return float64(o.keys) < share*float64(len(t.keys)) }); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// slot returns the part of the log's time that contains an instant.
func (a *analysis) slot(at int64) int {
	first, last := a.requests[0].at, a.requests[len(a.requests)-1].at
	return int(slots * (at - first) / (last - first + 1))
}

// keysDenied returns how many keys were denied something.
func keysDenied(r limittest.Report) int {
	return sort.Search(len(r.Keys), func(i int) bool { return r.Keys[i].Denied == 0 })
}

// atQuantile returns the most units that the share q of the keys used within the limit's period.
func (j *judged) atQuantile(q float64) int64 {
	return j.sorted[min(int(q*float64(len(j.sorted))), len(j.sorted)-1)]
}

// coarse reports whether the times of the log are whole seconds, and a limit has a period that is short enough for that to matter.
func (a *analysis) coarse() bool {
	return !a.part && slices.ContainsFunc(a.limits, func(j judged) bool { return j.period < 10*time.Second })
}

// leftOut describes the lines that are not counted.
func (t *traffic) leftOut() string {
	says := []string{count(t.lines, "line") + " read"}
	for _, s := range t.skipped {
		says = append(says, fmt.Sprintf("%s %s, the first is line %s%s", plural(s.lines, "is", "are"), s.why, grouped(int64(s.first)), s.has()))
	}
	return strings.Join(append(says, t.broken...), "; ")
}

// has names the fields of the first line that is left out, if they show why.
func (s skipped) has() string {
	const most = 12
	switch {
	case !strings.HasPrefix(s.why, "without ") || len(s.fields) == 0:
		return ""
	case len(s.fields) > most:
		return fmt.Sprintf(", which has the fields %q and others", s.fields[:most])
	}
	return fmt.Sprintf(", which has the fields %q", s.fields)
}

// strangers returns how many keys are not addresses, and one of them, if the keys were read from fields that should contain addresses.
func (t *traffic) strangers() (n int, example string) {
	for _, field := range t.fields {
		if field == "user" || field == "key" || field != "http_x_forwarded_for" && !slices.Contains(keyNames[:], field) {
			return 0, ""
		}
	}
	for _, key := range t.keys {
		_, isAddress := address([]byte(key))
		if _, err := netip.ParsePrefix(key); !isAddress && err != nil {
			n++
			example = key
		}
	}
	return n, example
}
