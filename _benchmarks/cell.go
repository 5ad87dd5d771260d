package main

import (
	"fmt"
	"time"
)

// The scenarios.
const (
	admitted = "admitted" // the limit is never reached
	denied   = "denied"   // the limit was reached long ago
)

// A cell is one combination of the matrix. Contenders are compared within it.
type cell struct {
	callers  int
	keys     int
	scenario string
	latency  time.Duration // added to each round trip
	cluster  bool          // on a Cluster of three masters
}

func (c cell) limit() limit {
	if c.scenario == denied {
		return scarce()
	}
	return plenty()
}

// plenty is a limit that is never reached: a unit every microsecond.
func plenty() limit { return limit{6e7, time.Minute} }

// scarce is a limit that the first request of a key uses up.
func scarce() limit { return limit{1, time.Hour} }

// String returns the title of the cell's table.
func (c cell) String() string {
	keys := grouped(float64(c.keys)) + " keys"
	if c.keys == 1 {
		keys = "1 key"
	}
	network := "no latency added"
	if c.latency > 0 {
		network = fmt.Sprintf("%v of network latency", c.latency)
	}
	callers := fmt.Sprintf("%d callers", c.callers)
	if c.callers == 1 {
		callers = "1 caller"
	}
	if c.cluster {
		network = "a Cluster of three masters"
	}
	return fmt.Sprintf("%s, %s, all %s, %s", callers, keys, c.scenario, network)
}

// essential returns the cells of a run without flags. The first two are those of the
// chart; each of the others differs from one of them in one value.
func essential() []cell {
	const ms = time.Millisecond
	return []cell{
		{1, 10_000, admitted, 0, false},
		{64, 10_000, admitted, 0, false},
		{256, 10_000, admitted, 0, false},
		{64, 1, admitted, 0, false},
		{64, 10_000, denied, 0, false},
		{64, 10_000, admitted, ms, false},
		{64, 10_000, admitted, 0, true},
		{256, 10_000, admitted, 0, true},
	}
}

// matrix returns the cells for all combinations of these values.
func matrix(callers, keys []int, scenarios []string, latencies []time.Duration, cluster bool) []cell {
	all := make([]cell, 0, len(callers)*len(keys)*len(scenarios)*len(latencies))
	for _, l := range latencies {
		for _, s := range scenarios {
			for _, k := range keys {
				for _, c := range callers {
					all = append(all, cell{c, k, s, l, cluster})
				}
			}
		}
	}
	return all
}
