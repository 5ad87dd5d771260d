package browser

import (
	"fmt"
	"strings"
	"testing"
)

// TestPromises lets the page judge what algorithms have served: the verdict must be "broken" only where an algorithm
// breaks its own promise.
func TestPromises(t *testing.T) {
	t.Parallel()
	server := start(t)
	p := open(t, server.url+"/?shape=hand", desktop, height)
	times := func(from float64, every float64, n int) string {
		var list strings.Builder
		for i := range n {
			fmt.Fprintf(&list, "%f,", from+float64(i)*every)
		}
		return list.String()
	}
	const start = 1_800_000_000_000 // ms; a window begins then
	for _, test := range []struct {
		name, lane, times string
		broken            bool // whether the promise is broken
		because           string
	}{
		{"both sides of a boundary", "{windows: true}", times(start-500, 40, 10) + times(start+100, 40, 10), false, "10 + 10, around a boundary"},
		{"eleven in a window", "{windows: true}", times(start+100, 40, 11), true, ""},
		{"a sliding estimate", "{}", times(start-500, 40, 10) + times(start+1000, 40, 2), false, "10 + 2: it estimates the log"},
		{"ten in a period", "{exact: true}", times(start-500, 40, 10), false, "never more in any 5 s"},
		{"eleven in a period", "{exact: true}", times(start-500, 400, 11), true, ""},
		{"a burst and what is refilled", "{bucket: true}", times(start, 40, 10) + times(start+1000, 500, 2), false, "burst 10 + 2 refilled"},
		{"more than is refilled", "{bucket: true}", times(start, 40, 10) + times(start+1000, 100, 3), true, ""},
		{"one by one", "{bucket: true, leaky: true}", times(start, 500, 12), false, "one each 0.5 s"},
		{"two at once", "{bucket: true, leaky: true}", times(start, 500, 3) + times(start+1100, 500, 3), true, ""},
		{"ten at once, and again when their work has ended", "{slots: true}", times(start, 10, 10) + times(start+1001, 10, 10), false, "free when done"},
		{"eleven at once", "{slots: true}", times(start, 90, 11), true, ""},
		{"a bucket, and fifteen in 15 s", "{bucket: true, second: true}", times(start, 40, 10) + times(start+5000, 500, 5), false, "15 at most in 15 s"},
		{"sixteen in 15 s", "{bucket: true, second: true}", times(start, 40, 10) + times(start+5000, 500, 6), true, ""},
		{"a bucket that overflows beside", "{bucket: true, second: true}", times(start, 40, 12), true, ""},
	} {
		expression := fmt.Sprintf(`import("./promise.js").then(({ verdict }) => verdict(%s, [%s], { rate: 10, burst: 10 }, 5000))`, test.lane, test.times)
		got := await[struct {
			Broken  bool
			Because string
		}](p, expression)
		if got.Broken != test.broken || test.because != "" && got.Because != test.because {
			t.Errorf("%s: got %+v, want broken %t, because %q", test.name, got, test.broken, test.because)
		}
	}
}
