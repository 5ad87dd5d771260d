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
	callers   int
	keys      int
	scenario  string
	latency   time.Duration // added to each round trip
	zipf      float64       // key number i is asked for in proportion to i^-zipf; 0: all alike
	processes int           // each with so many callers; 0: this one
	cluster   bool          // on a Cluster of three masters
	batch     int           // decisions of this library in one round trip at most; 0: as many as by default
}

func (c cell) limit() limit {
	if c.scenario == denied {
		return scarce()
	}
	return plenty()
}

// zipf is how unevenly keys are asked for in the essential cells: of 10,000 keys the first gets
// 15 % of the requests, the first hundred 65 %.
const zipf = 1.1

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

// essential returns the cells of a run without flags. The first three are those of the
// chart; each of the others differs from one of them in one value.
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

// inRedis returns the cells of -redis-cpu: decisions sent alone, and in batches that are always
// full, so that it does not matter when a process sends one.
func inRedis() []cell {
	return []cell{
		{callers: 1, keys: 10_000, scenario: admitted},
		{callers: 256, keys: 10_000, scenario: admitted, batch: 64},
	}
}

// matrix returns the cells for all combinations of the values.
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
