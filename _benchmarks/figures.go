package main

import (
	"math"
	"slices"
	"time"
)

// A metric is one of the figures that are measured for each contender.
type metric struct {
	id     string // in JSON
	title  string // in tables
	higher bool   // whether a higher value is better
	digits int    // after the decimal point
	plain  bool   // shown without ratios
	of     func(*slice) float64
}

// metrics returns all metrics. CPU is in microseconds per decision.
func metrics() []metric {
	per := func(f func(usage) float64) func(*slice) float64 {
		return func(s *slice) float64 { return f(s.used) / float64(s.decisions) }
	}
	quantile := func(q float64) func(*slice) float64 {
		return func(s *slice) float64 { return float64(s.latencies.ValueAtQuantile(q)) / float64(time.Microsecond) }
	}
	return []metric{
		{id: "rate", title: "decisions/s", higher: true, of: func(s *slice) float64 { return float64(s.decisions) / s.took.Seconds() }},
		{id: "p50_us", title: "p50 µs", digits: 2, of: quantile(50)},
		{id: "p99_us", title: "p99 µs", digits: 2, of: quantile(99)},
		{id: "redis_cpu_us", title: "Redis CPU µs", digits: 2, of: per(func(u usage) float64 { return u.redisCPU })},
		{id: "allocs", title: "allocs", digits: 1, of: per(func(u usage) float64 { return float64(u.mallocs) })},
		{id: "client_cpu_us", title: "client CPU µs", digits: 2, of: per(func(u usage) float64 { return u.clientCPU })},
		{id: "cpu_us", title: "both CPU µs", digits: 2, of: per(func(u usage) float64 { return u.clientCPU + u.redisCPU })},
		{id: "commands", title: "commands", digits: 2, plain: true, of: per(func(u usage) float64 { return u.commands })},
		{id: "reads", title: "reads", digits: 2, plain: true, of: per(func(u usage) float64 { return u.reads })},
		{id: "failed", title: "failed %", digits: 1, plain: true, of: func(s *slice) float64 {
			return 100 * float64(s.excused) / float64(s.excused+s.decisions)
		}},
	}
}

// figures are the values of one contender in one round, in the order of metrics().
type figures []float64

// A round has the figures of each contender, in the order of the cell's runners.
type round []figures

// A summary has the medians of a contender over all rounds.
type summary struct {
	*contender

	value  figures
	toIncr figures // the ratio to raw INCR in the same round
	toPeer figures // the ratio to the best peer in the same round
}

// summarize takes the medians over the rounds. A ratio is NaN if there is nothing to compare with.
func summarize(runners []*runner, rounds []round) []*summary {
	all := make([]*summary, len(runners))
	for i, r := range runners {
		s := &summary{contender: r.contender}
		for m, metric := range metrics() {
			s.value = append(s.value, overRounds(rounds, func(rd round) float64 { return rd[i][m] }))
			s.toIncr = append(s.toIncr, overRounds(rounds, func(rd round) float64 { return rd[i][m] / incrOf(runners, rd, m) }))
			s.toPeer = append(s.toPeer, overRounds(rounds, func(rd round) float64 { return rd[i][m] / bestPeer(runners, rd, m, metric.higher) }))
		}
		all[i] = s
	}
	return all
}

func incrOf(runners []*runner, rd round, m int) float64 {
	for i, r := range runners {
		if r.name == incr {
			return rd[i][m]
		}
	}
	return math.NaN()
}

func bestPeer(runners []*runner, rd round, m int, higher bool) float64 {
	best := math.NaN()
	for i, r := range runners {
		if v := rd[i][m]; r.kind == peer && (math.IsNaN(best) || higher == (v > best)) {
			best = v
		}
	}
	return best
}

func overRounds(rounds []round, f func(round) float64) float64 {
	values := make([]float64, len(rounds))
	for i, rd := range rounds {
		values[i] = f(rd)
	}
	return median(values)
}

func median(values []float64) float64 {
	slices.Sort(values)
	if n := len(values); n%2 == 0 {
		return (values[n/2-1] + values[n/2]) / 2
	}
	return values[len(values)/2]
}
