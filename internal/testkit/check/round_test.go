package check

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// recorder is a testing.TB that records its failures.
type recorder struct {
	testing.TB

	failures []string
	skipped  bool
}

func (r *recorder) Skipf(string, ...any) { r.skipped = true }

func (r *recorder) Error(args ...any)   { r.failures = append(r.failures, fmt.Sprint(args...)) }
func (r *recorder) Logf(string, ...any) {}

// With the timeout late, every machine counts as late, and with onTime none: they are a twentieth of a nanosecond and 3 minutes.
const (
	late   = time.Nanosecond
	onTime = time.Hour
)

// TestRounds checks when a round is repeated, and which failures the test reports.
func TestRounds(t *testing.T) {
	for name, c := range map[string]struct {
		timeouts []time.Duration
		fails    int // how many of the first rounds fail
		rounds   int // how many rounds are expected
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
				time.Sleep(5 * time.Millisecond) // so that a lateness is measured
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
				t.Errorf("the rounds had the timeouts %v, want %v", got, want)
			}
			switch {
			case c.failed != (len(r.failures) == 1):
				t.Errorf("%d failures were reported, want 1 if the last round failed, or else 0: %q", len(r.failures), r.failures)
			case c.failed && !strings.HasPrefix(r.failures[0], "part: round_test.go:"):
				t.Errorf("the failure is %q, want one that begins with its part and place", r.failures[0])
			}
		})
	}
}

// TestBusyMachine checks that a busy machine does not judge tests that need an idle one, and that the message of a failure
// is cut off.
func TestBusyMachine(t *testing.T) {
	for busy, tooLate := range map[bool]time.Duration{true: 0, false: time.Hour} {
		r := &recorder{TB: t}
		rounds(r, []time.Duration{late, late}, tooLate, func(r *Round, _ time.Duration) {
			time.Sleep(5 * time.Millisecond)
			r.Error(strings.Repeat("long ", 100_000))
		})
		if r.skipped != busy || !busy && (len(r.failures) != 1 || len(r.failures[0]) > 2*longest) {
			t.Errorf("busy %v: got skipped %v and the failures %.100q, want a skip, or else one short failure", busy, r.skipped, r.failures)
		}
	}
}

// TestRoundEnds checks that the cleanups of a round that ends early run, the last one first, after its context has ended.
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
		t.Errorf("the order was %q, want %q", order, want)
	}
	if len(r.failures) != 1 || !strings.Contains(r.failures[0], "it is over") {
		t.Errorf("the failures are %q, want the one of Fatal", r.failures)
	}
}
