package check

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// recorder is a test whose failures are looked at.
type recorder struct {
	testing.TB

	failures []string
	skipped  bool
}

func (r *recorder) Skipf(string, ...any) { r.skipped = true }

func (r *recorder) Error(args ...any)   { r.failures = append(r.failures, fmt.Sprint(args...)) }
func (r *recorder) Logf(string, ...any) {}

// A machine is always late by more than a tenth of a nanosecond, and never by some minutes.
const (
	late   = time.Nanosecond
	onTime = time.Hour
)

func TestRounds(t *testing.T) {
	for name, c := range map[string]struct {
		timeouts []time.Duration
		fails    int // how many of the first rounds fail
		rounds   int // that are expected
		failed   bool
	}{
		"passes":                         {[]time.Duration{onTime, onTime}, 0, 1, false},
		"passes on a late machine":       {[]time.Duration{late, late}, 0, 1, false},
		"fails":                          {[]time.Duration{onTime, onTime}, 1, 1, true},
		"fails on a late machine":        {[]time.Duration{late, onTime}, 1, 2, false},
		"fails again, in time":           {[]time.Duration{late, onTime, onTime}, 2, 2, true},
		"fails always on a late machine": {[]time.Duration{late, late, late}, 3, 3, true},
	} {
		t.Run(name, func(t *testing.T) {
			var got []time.Duration
			r := &recorder{TB: t}
			Rounds(r, c.timeouts, func(r *Round, timeout time.Duration) {
				got = append(got, timeout)
				time.Sleep(5 * time.Millisecond) // for something to be measured
				fail := func() { r.Part("part").Errorf("round %d", len(got)) }
				switch {
				case len(got) > c.fails:
				case len(got) == 1:
					r.Cleanup(fail)
				default:
					fail()
				}
			})
			if want := c.timeouts[:c.rounds]; !slices.Equal(got, want) {
				t.Errorf("rounds of %v, want %v", got, want)
			}
			switch {
			case c.failed != (len(r.failures) == 1):
				t.Errorf("%d failures are reported: %q", len(r.failures), r.failures)
			case c.failed && !strings.HasPrefix(r.failures[0], "part: round_test.go:"):
				t.Errorf("the failure is %q, want its part and place", r.failures[0])
			}
		})
	}
}

// What needs an idle machine is not judged by a busy one. A failure is not longer than one can read.
func TestBusyMachine(t *testing.T) {
	for busy, tooLate := range map[bool]time.Duration{true: 0, false: time.Hour} {
		r := &recorder{TB: t}
		rounds(r, []time.Duration{late, late}, tooLate, func(r *Round, _ time.Duration) {
			time.Sleep(5 * time.Millisecond)
			r.Error(strings.Repeat("long ", 100_000))
		})
		if r.skipped != busy || !busy && (len(r.failures) != 1 || len(r.failures[0]) > 2*longest) {
			t.Errorf("busy %v: skipped %v, failures %.100q", busy, r.skipped, r.failures)
		}
	}
}

// If a round ends early, its cleanups run, the last one first, and its context has ended by then.
func TestRoundEnds(t *testing.T) {
	var order []string
	r := &recorder{TB: t}
	Rounds(r, []time.Duration{onTime}, func(r *Round, _ time.Duration) {
		ctx := r.Context()
		r.Cleanup(func() { order = append(order, fmt.Sprint("first, context ended: ", ctx.Err() != nil)) })
		r.Cleanup(func() { order = append(order, "second") })
		r.Fatal("it is over")
		order = append(order, "after Fatal")
	})
	if want := []string{"second", "first, context ended: true"}; !slices.Equal(order, want) {
		t.Errorf("%q, want %q", order, want)
	}
	if len(r.failures) != 1 || !strings.Contains(r.failures[0], "it is over") {
		t.Errorf("failures %q", r.failures)
	}
}
