package model

import (
	"math/big"
	"slices"

	"github.com/redislimit/redislimit/internal/testkit/spends"
)

// SlidingWindowLog is modeled by its charges.
var SlidingWindowLog = register("sliding_window_log", algorithm{new: func() store { return &slidingLog{} }, spends: spends.Log})

// slidingLog has every admitted unit with its instant. The units of one charge are one run, so that a charge of 100,000
// units takes no more time than a charge of one.
type slidingLog struct {
	runs    []run // oldest first: because of clock, a new charge is never older
	units   int64 // the units of all runs
	charges int64 // how many charges there have been: it numbers the runs
}

// A run is one charge. Its number distinguishes it from other charges at the same instant.
type run struct{ instant, units, charge int64 }

func (s *slidingLog) clone() store {
	c := *s
	c.runs = slices.Clone(s.runs)
	return &c
}

func (s *slidingLog) clock(_ Limit, now int64) int64 {
	if len(s.runs) == 0 {
		return now
	}
	return max(now, s.runs[len(s.runs)-1].instant)
}

// left counts the runs that have left the window (t-T, t], and their units.
func (s *slidingLog) left(l Limit, t int64) (runs int, units int64) {
	for _, r := range s.runs {
		if r.instant > t-l.Period {
			break
		}
		runs++
		units += r.units
	}
	return runs, units
}

func (s *slidingLog) used(l Limit, t int64) *big.Rat {
	_, gone := s.left(l, t)
	return whole(s.units - gone)
}

// retry returns the time until enough of the oldest units have left the window for n to fit.
func (s *slidingLog) retry(l Limit, t, n int64) *big.Rat {
	first, gone := s.left(l, t)
	over := s.units - gone + n - l.Count
	for _, r := range s.runs[first:] {
		if over -= r.units; over <= 0 {
			return whole(r.instant + l.Period - t)
		}
	}
	panic("model: retry with a cost that never fits")
}

// reset returns the time until the newest charge has left the window.
func (s *slidingLog) reset(l Limit, t int64) *big.Rat {
	first, _ := s.left(l, t)
	if first == len(s.runs) {
		return new(big.Rat)
	}
	return whole(s.runs[len(s.runs)-1].instant + l.Period - t)
}

// charge removes charges that have left the window. Units that are charged without being admitted are capped at the largest
// limit that a log can have: more units would not make any limit deny for longer.
func (s *slidingLog) charge(l Limit, t, n int64) ticket {
	n = min(n, 100_000)
	first, gone := s.left(l, t)
	s.charges++
	s.runs = append(s.runs[first:], run{instant: t, units: n, charge: s.charges})
	s.units += n - gone
	return ticket{units: n, charge: s.charges}
}

// refund removes the run of the charge, whether it is in the window or not.
func (s *slidingLog) refund(_ Limit, _ int64, back ticket) {
	i := slices.IndexFunc(s.runs, func(r run) bool { return r.charge == back.charge })
	if i < 0 {
		return
	}
	s.runs = slices.Delete(s.runs, i, i+1)
	s.units -= back.units
}
