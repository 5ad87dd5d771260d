package main

import (
	"testing"
	"time"
)

// TestPast checks that a new page shows the traffic of the last seconds, and that the live
// limiters continue with its counts.
func TestPast(t *testing.T) {
	t.Parallel()
	_, url := serve(t, nil)
	p := follow(t, url, "shape=steady&traffic=20&rate=10")
	h := next[hello](p)
	c := next[changed](p)
	if past := time.Duration(h.At-c.At) * time.Millisecond; past < shown || past > shown+5*time.Second {
		t.Errorf("the past has a length of %v, want about %v", past, shown)
	}
	served := map[string][]time.Duration{}
	before, after := 0, 0
	for after < 20*len(served)+1 {
		d := next[decision](p)
		if d.Source == "fallback" || d.Source == "none" {
			t.Fatalf("got the decision %+v, want none by an outage policy", d)
		}
		if d.At < h.At {
			before++
		} else {
			after++
		}
		if d.Allowed {
			served[d.Lane] = append(served[d.Lane], time.Duration((d.At+d.Delay)*float64(time.Millisecond)))
		}
	}
	if before < 40*answering || after < 20*answering {
		t.Errorf("got %d decisions of the past and %d live ones, want at least %d and %d", before, after, 40*answering, 20*answering)
	}
	for lane, most := range map[string]int{"fixed_window": 20, "sliding_window_log": 10, "token_bucket": 20, "leaky_bucket": 10, "fail_open": 12} {
		if got := mostInAPeriod(served[lane]); got < 8 || got > most {
			t.Errorf("%s: %d requests were served in a period, want 8 to %d", lane, got, most)
		}
	}
}
