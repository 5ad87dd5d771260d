package main

import (
	"errors"
	"flag"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// options are the values of the command line.
type options struct {
	config

	contenders []*contender
	json, svg  string
	processes  int
	early      bool
	redisCPU   bool
}

// errFlag is the error for an invalid command line.
var errFlag = errors.New("wrong flag")

func parse(args []string) (*options, error) {
	o := &options{}
	f := flag.NewFlagSet("_benchmarks", flag.ContinueOnError)
	full := f.Bool("full", false, "every contender in every cell; takes about 40 minutes")
	quick := f.Bool("quick", false, "a few contenders for a few seconds, to see whether it runs")
	var given axes
	given.define(f)
	which := f.String("contenders", "", "a regular expression: only the contenders that match, also those of -full")
	f.IntVar(&o.processes, "processes", 1, "how many processes have so many callers each; with 2 or more no latency can be added")
	f.BoolVar(&o.early, "early", false, "instead of cells: with 2 or more processes, how many requests are denied too early because of leases")
	f.BoolVar(&o.redisCPU, "redis-cpu", false, "what decisions take of Redis's CPU, alone and in batches of 64; takes under a minute")
	f.IntVar(&o.rounds, "rounds", 11, "number of rounds; the tables have the medians over them")
	f.DurationVar(&o.slice, "slice", 120*time.Millisecond, "how long each contender is measured in a round")
	f.StringVar(&o.json, "json", "", "the file for all medians")
	f.StringVar(&o.svg, "svg", "", "the file for the chart; it needs the cells with 1, 8 and 64 callers, 10000 keys, admitted, 0s")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 || !o.isValid() || o.processes > 1 && (*quick || *full || given.cluster || given.latency != "") ||
		given.cluster && given.latency != "" || o.redisCPU && (*quick || *full || o.processes > 1 || given != (axes{})) {
		return nil, fmt.Errorf("%w: see -help", errFlag)
	}
	if o.redisCPU && *which == "" {
		*which = shownInRedis
	}
	pattern, err := regexp.Compile(*which)
	if err != nil {
		return nil, fmt.Errorf("-contenders: %w", err)
	}
	o.contenders = choose(pattern, *which != "" || *full)
	o.cells, err = o.chooseCells(given, *quick, *full)
	return o, err
}

// chooseCells returns the cells that are measured.
func (o *options) chooseCells(given axes, quick, full bool) ([]cell, error) {
	chosen, err := given.read()
	if err != nil {
		return nil, err
	}
	if given.cluster {
		chosen.latencies = []time.Duration{0}
	}
	if o.processes > 1 {
		chosen.processes, chosen.latencies = o.processes, []time.Duration{0}
	}
	switch {
	case o.early:
		return nil, nil
	case quick:
		o.rounds, o.slice = 1, 20*time.Millisecond
		return []cell{
			{callers: 1, keys: 10_000, scenario: admitted},
			{callers: fewCallers, keys: 10_000, scenario: admitted},
			{callers: 64, keys: 10_000, scenario: admitted},
			{callers: 16, keys: 10_000, scenario: admitted, zipf: zipf},
			{callers: 16, keys: 1, scenario: denied, latency: time.Millisecond},
			{callers: 64, keys: 10_000, scenario: admitted, cluster: true},
		}, nil
	case o.redisCPU:
		return inRedis(), nil
	case full:
		return chosen.matrix(), nil
	case given != (axes{}):
		chosen.defaults(given)
		return chosen.matrix(), nil
	case o.processes > 1:
		chosen.callers, chosen.keys, chosen.scenarios = []int{64}, []int{1}, []string{admitted}
		return chosen.matrix(), nil
	}
	return essential(), nil
}

func (o *options) isValid() bool {
	return o.rounds >= 1 && o.slice >= time.Millisecond && o.processes >= 1 && o.processes <= 16 && (!o.early || o.processes > 1)
}

// choose returns the contenders whose name matches, and raw INCR, which they are compared with.
func choose(pattern *regexp.Regexp, all bool) []*contender {
	var chosen []*contender
	for _, c := range contenders() {
		if c.name == incr || (all || c.everyday) && pattern.MatchString(c.name) {
			chosen = append(chosen, c)
		}
	}
	return chosen
}

// chosen has the values of the flags of the matrix. A flag that is not given has all its values.
type chosen struct {
	callers, keys []int
	scenarios     []string
	latencies     []time.Duration
	zipfs         []float64
	processes     int
	cluster       bool
}

// axes are the flags of the matrix.
type axes struct {
	callers, keys, scenarios, latency, zipf string
	cluster                                 bool
}

func (a *axes) define(f *flag.FlagSet) {
	f.StringVar(&a.callers, "callers", "", "numbers of callers, such as 1,16,64,256")
	f.StringVar(&a.keys, "keys", "", "numbers of keys, such as 1,10000")
	f.StringVar(&a.scenarios, "scenarios", "", "admitted, denied or both, separated by a comma")
	f.StringVar(&a.latency, "latency", "", "network latencies to add, such as 0s,1ms")
	f.StringVar(&a.zipf, "zipf", "", "how unevenly keys are asked for, such as 0,1.1: 0 is evenly, else key number i in proportion to i^-s")
	f.BoolVar(&a.cluster, "cluster", false, "the cells on a Cluster of three masters, without latency; by default with 64 and 256 callers")
}

func (a *axes) read() (*chosen, error) {
	c := &chosen{
		[]int{1, fewCallers, 64, 256}, []int{10_000, 1}, []string{admitted, denied}, []time.Duration{0, time.Millisecond}, []float64{0}, 0, a.cluster,
	}
	var err1, err2, err3, err4, err5 error
	positive := func(s string) (int, error) {
		n, err := strconv.Atoi(s)
		if err == nil && (n < 1 || n > 1e5) {
			err = fmt.Errorf("%w: %d is not 1 to 100,000", errFlag, n)
		}
		return n, err
	}
	c.callers, err1 = list(a.callers, c.callers, positive)
	c.keys, err2 = list(a.keys, c.keys, positive)
	c.scenarios, err3 = list(a.scenarios, c.scenarios, func(s string) (string, error) {
		if s != admitted && s != denied {
			return s, fmt.Errorf("%w: -scenarios has %q", errFlag, s)
		}
		return s, nil
	})
	c.latencies, err4 = list(a.latency, c.latencies, time.ParseDuration)
	c.zipfs, err5 = list(a.zipf, c.zipfs, func(s string) (float64, error) {
		z, err := strconv.ParseFloat(s, 64)
		if err == nil && z != 0 && !(z > 1 && z <= 10) {
			err = fmt.Errorf("%w: -zipf has %v, which is neither 0 nor above 1 and at most 10", errFlag, z)
		}
		return z, err
	})
	return c, errors.Join(err1, err2, err3, err4, err5)
}

// list parses the comma-separated values of a flag.
func list[T any](text string, otherwise []T, read func(string) (T, error)) ([]T, error) {
	if text == "" {
		return otherwise, nil
	}
	var values []T
	for part := range strings.SplitSeq(text, ",") {
		v, err := read(strings.TrimSpace(part))
		if err != nil {
			return nil, err
		}
		values = append(values, v)
	}
	return values, nil
}

// defaults keeps only the default value of the axes without a flag.
func (c *chosen) defaults(given axes) {
	if given.callers == "" {
		c.callers = []int{1, 64}
		if given.cluster {
			c.callers = []int{64, 256}
		}
	}
	if given.keys == "" {
		c.keys = c.keys[:1]
	}
	if given.scenarios == "" {
		c.scenarios = c.scenarios[:1]
	}
	if given.latency == "" {
		c.latencies = c.latencies[:1]
	}
}

func (o *options) mostCallers() int {
	most := 0
	for _, c := range o.cells {
		most = max(most, c.callers)
	}
	return most
}
