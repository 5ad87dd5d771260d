package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// period is the period of every limit. It is so short that two periods can be watched in ten seconds.
const period = 5 * time.Second

// These are the bounds of the values that the controls of the page may set. The sliders have the same bounds.
const (
	minRate, maxRate       = 2, 40
	minBurst, maxBurst     = 1, 20
	minTraffic, maxTraffic = 1, 60
	minCost, maxCost       = 1, 5
)

// A config contains the values of the page's controls.
type config struct {
	Rate    int64 `json:"rate"`    // units per period, for all algorithms
	Burst   int64 `json:"burst"`   // capacity of the three buckets
	Traffic int64 `json:"traffic"` // requests per period; see shape
	Cost    int64 `json:"cost"`    // units per request
	Shape   shape `json:"shape"`
	Ban     bool  `json:"ban"` // whether a client that an algorithm denies is banned, for 6 s and then 12 s
}

// defaults returns the configuration of a page whose address sets nothing.
func defaults() config { return config{Rate: 10, Burst: 10, Traffic: 15, Cost: 1, Shape: boundary} }

// configOf returns the configuration in the query of a page's address. Values that are
// missing have their defaults.
func configOf(query url.Values) (config, error) {
	c := defaults()
	for name, value := range map[string]*int64{"rate": &c.Rate, "burst": &c.Burst, "traffic": &c.Traffic, "cost": &c.Cost} {
		if !query.Has(name) {
			continue
		}
		var err error
		if *value, err = strconv.ParseInt(query.Get(name), 10, 64); err != nil {
			return config{}, fmt.Errorf("%s is %.40q: want a number", name, query.Get(name))
		}
	}
	if query.Has("shape") {
		c.Shape = shape(query.Get("shape"))
	}
	c.Ban = query.Get("ban") == "true"
	return c, c.validate()
}

// readConfig returns c with the changes that a page sends as JSON.
func readConfig(r io.Reader, c config) (config, error) {
	decoder := json.NewDecoder(r)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&c); err != nil {
		return config{}, fmt.Errorf("not the JSON of a configuration: %w", err)
	}
	if decoder.More() {
		return config{}, errors.New("more than one JSON value")
	}
	return c, c.validate()
}

func (c config) validate() error {
	for _, field := range []struct {
		name         string
		n, low, high int64
	}{
		{"rate", c.Rate, minRate, maxRate},
		{"burst", c.Burst, minBurst, maxBurst},
		{"traffic", c.Traffic, minTraffic, maxTraffic},
		{"cost", c.Cost, minCost, maxCost},
	} {
		if field.n < field.low || field.n > field.high {
			return fmt.Errorf("%s is %d: allowed is %d to %d", field.name, field.n, field.low, field.high)
		}
	}
	if !slices.Contains(shapes(), c.Shape) {
		names := make([]string, 0, len(shapes()))
		for _, s := range shapes() {
			names = append(names, string(s))
		}
		return fmt.Errorf("shape is %.40q: allowed are %s", c.Shape, strings.Join(names, ", "))
	}
	return nil
}
