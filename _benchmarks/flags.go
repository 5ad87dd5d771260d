package main

import (
	"errors"
	"flag"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// options are the values of the command line.
type options struct {
	config

	contenders []*contender
	json, svg  string
}

// errFlag is the error of a wrong command line.
var errFlag = errors.New("wrong flag")

func parse(args []string) (*options, error) {
	o := &options{}
	f := flag.NewFlagSet("_benchmarks", flag.ContinueOnError)
	full := f.Bool("full", false, "every contender in every cell; takes about 40 minutes")
	quick := f.Bool("quick", false, "a few contenders for a few seconds, to see whether it runs")
	callers := f.String("callers", "", "numbers of callers, such as 1,16,64,256")
	keys := f.String("keys", "", "numbers of keys, such as 1,10000")
	scenarios := f.String("scenarios", "", "admitted, denied or both, separated by a comma")
	latency := f.String("latency", "", "network latencies to add, such as 0s,1ms")
	cluster := f.Bool("cluster", false, "the cells on a Cluster of three masters, without latency; by default with 64 and 256 callers")
	which := f.String("contenders", "", "a regular expression: only the contenders that match, also those of -full")
	f.IntVar(&o.rounds, "rounds", 11, "number of rounds; the tables have the medians over them")
	f.DurationVar(&o.slice, "slice", 120*time.Millisecond, "how long each contender is measured in a round")
	f.StringVar(&o.json, "json", "", "the file for all medians")
	f.StringVar(&o.svg, "svg", "", "the file for the chart; it needs the cells with 64 callers and with 1 caller, 10000 keys, admitted, 0s")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 || o.rounds < 1 || o.slice < time.Millisecond {
		return nil, fmt.Errorf("%w: see -help", errFlag)
	}
	pattern, err := regexp.Compile(*which)
	if err != nil {
		return nil, fmt.Errorf("-contenders: %w", err)
	}
	o.contenders = choose(pattern, *which != "" || *full)
	if err := onCluster(*cluster, *full, callers, latency); err != nil {
		return nil, err
	}
	chosen, err := axes(*callers, *keys, *scenarios, *latency)
	if err != nil {
		return nil, err
	}
	switch {
	case *quick:
		o.rounds, o.slice = 1, 20*time.Millisecond
		o.cells = quickCells()
	case *full:
		o.cells = matrix(chosen.callers, chosen.keys, chosen.scenarios, chosen.latencies, *cluster)
	case *cluster || *callers+*keys+*scenarios+*latency != "":
		o.cells = chosen.matrix(*callers == "", *keys == "", *scenarios == "", *latency == "", *cluster)
	default:
		o.cells = essential()
	}
	return o, nil
}

func quickCells() []cell {
	return []cell{
		{1, 10_000, admitted, 0, false}, {64, 10_000, admitted, 0, false}, {16, 1, denied, time.Millisecond, false}, {64, 10_000, admitted, 0, true},
	}
}

// onCluster sets what -cluster chooses: no latency, and other numbers of callers.
func onCluster(cluster, full bool, callers, latency *string) error {
	if !cluster {
		return nil
	}
	if *latency != "" {
		return fmt.Errorf("%w: -latency with -cluster", errFlag)
	}
	*latency = "0s"
	if *callers == "" && !full {
		*callers = "64,256"
	}
	return nil
}

// choose returns the contenders that match, and raw INCR, which they are compared with.
func choose(pattern *regexp.Regexp, all bool) []*contender {
	var chosen []*contender
	for _, c := range contenders() {
		if c.name == incr || (all || c.everyday) && pattern.MatchString(c.name) {
			chosen = append(chosen, c)
		}
	}
	return chosen
}

// chosen has the values of the flags of the matrix. A flag that is not given has all
// values.
type chosen struct {
	callers, keys []int
	scenarios     []string
	latencies     []time.Duration
}

func axes(callers, keys, scenarios, latency string) (*chosen, error) {
	c := &chosen{[]int{1, 16, 64, 256}, []int{10_000, 1}, []string{admitted, denied}, []time.Duration{0, time.Millisecond}}
	var err1, err2, err3, err4 error
	positive := func(s string) (int, error) {
		n, err := strconv.Atoi(s)
		if err == nil && (n < 1 || n > 1e5) {
			err = fmt.Errorf("%w: %d is not 1 to 100,000", errFlag, n)
		}
		return n, err
	}
	c.callers, err1 = list(callers, c.callers, positive)
	c.keys, err2 = list(keys, c.keys, positive)
	c.scenarios, err3 = list(scenarios, c.scenarios, func(s string) (string, error) {
		if s != admitted && s != denied {
			return s, fmt.Errorf("%w: -scenarios has %q", errFlag, s)
		}
		return s, nil
	})
	c.latencies, err4 = list(latency, c.latencies, time.ParseDuration)
	return c, errors.Join(err1, err2, err3, err4)
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

// matrix returns the cells. For axes without a flag it uses only the default value.
func (c *chosen) matrix(callers, keys, scenarios, latency, cluster bool) []cell {
	if callers {
		c.callers = []int{1, 64}
	}
	if keys {
		c.keys = c.keys[:1]
	}
	if scenarios {
		c.scenarios = c.scenarios[:1]
	}
	if latency {
		c.latencies = c.latencies[:1]
	}
	return matrix(c.callers, c.keys, c.scenarios, c.latencies, cluster)
}

func (o *options) mostCallers() int {
	return slices.MaxFunc(o.cells, func(a, b cell) int { return a.callers - b.callers }).callers
}
