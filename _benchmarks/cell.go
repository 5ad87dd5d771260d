package main

import (
	"fmt"
	"time"
)

// Scenarios.
const (
	admitted = "admitted" // the limit is never reached
	denied   = "denied"   // the limit was reached long ago
)

// A cell is one combination of conditions. Contenders are compared within a cell.
type cell struct {
	callers   int
	keys      int
	scenario  string
	latency   time.Duration // added to each round trip
	zipf      float64       // the frequency of key number i is proportional to i^-zipf; 0: all keys are equally frequent
	processes int           // each of them has that number of callers; 0: only this process
	cluster   bool          // on a Cluster of three masters
	batch     int           // the maximum of decisions of this library in one round trip; 0: the default
}

func (c cell) limit() limit {
	if c.scenario == denied {
		return scarce()
	}
	return plenty()
}

// zipf is the exponent of the essential cells. Of 10,000 keys, the first gets 15 % of the requests, and the
// first hundred get 65 %.
const zipf = 1.1

// plenty is a limit that is never reached: it grants a unit every microsecond.
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
	if c.zipf > 0 {
		keys += fmt.Sprintf(" by Zipf's law (s = %v)", c.zipf)
	}
	callers := fmt.Sprintf("%d callers", c.callers)
	if c.callers == 1 {
		callers = "1 caller"
	}
	if c.processes > 1 {
		callers = fmt.Sprintf("%d processes with %s each", c.processes, callers)
	}
	if c.cluster {
		network = "a Cluster of three masters"
	}
	title := fmt.Sprintf("%s, %s, all %s, %s", callers, keys, c.scenario, network)
	if c.batch > 0 {
		title += fmt.Sprintf(", batches of %d", c.batch)
	}
	return title
}

// essential returns the cells of a run without flags. The first three are shown in the chart. Each of the
// others differs from one of them in a single value.
func essential() []cell {
	return []cell{
		{callers: 1, keys: 10_000, scenario: admitted},
		{callers: fewCallers, keys: 10_000, scenario: admitted},
		{callers: 64, keys: 10_000, scenario: admitted},
		{callers: 256, keys: 10_000, scenario: admitted},
		{callers: 64, keys: 1, scenario: admitted},
		{callers: 64, keys: 10_000, scenario: admitted, zipf: zipf},
		{callers: 64, keys: 10_000, scenario: denied},
		{callers: 64, keys: 10_000, scenario: admitted, latency: time.Millisecond},
		{callers: 64, keys: 10_000, scenario: admitted, cluster: true},
		{callers: 256, keys: 10_000, scenario: admitted, cluster: true},
	}
}

// inRedis returns the cells of -redis-cpu: decisions that are sent alone, and decisions in batches. The
// batches are always full, so the moment at which a process sends a batch does not matter.
func inRedis() []cell {
	return []cell{
		{callers: 1, keys: 10_000, scenario: admitted},
		{callers: 256, keys: 10_000, scenario: admitted, batch: 64},
	}
}

// matrix returns one cell for each combination of the flags' values.
func (c *chosen) matrix() []cell {
	all := make([]cell, 0, len(c.callers)*len(c.zipfs)*len(c.keys)*len(c.scenarios)*len(c.latencies))
	for _, l := range c.latencies {
		for _, s := range c.scenarios {
			for _, k := range c.keys {
				for _, z := range c.zipfs {
					for _, callers := range c.callers {
						all = append(all, cell{callers, k, s, l, z, c.processes, c.cluster, 0})
					}
				}
			}
		}
	}
	return all
}
