package httplimit

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestRetryAfter has headers as servers and attackers write them. An answer was sent at 23:00:00 by the other side's clock.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	const date = "Sun, 22 Nov 2026 23:00:00 GMT"
	here := time.Date(2026, 11, 22, 20, 0, 0, 0, time.UTC) // this machine's clock
	for _, c := range []struct {
		headers string
		want    time.Duration
	}{
		{"", 0},
		{"Retry-After: 7", 7 * time.Second},
		{"Retry-After: 0", 0},
		{"Retry-After: 1.5", 1500 * time.Millisecond},
		{"Retry-After-Ms: 350|Retry-After: 1", 350 * time.Millisecond},
		{"Retry-After-Ms: 0.25", 250 * time.Microsecond},
		{"Retry-After-Ms: 0|Retry-After: 2", 2 * time.Second},
		{"Retry-After-Ms: soon|Retry-After: 2", 2 * time.Second},
		{"Retry-After: 3|Retry-After: 9|Retry-After: 5", 9 * time.Second},
		{"Retry-After: 3600", time.Minute},
		{"Retry-After: 99999999999999999999999", time.Minute},
		{"Retry-After: 1" + strings.Repeat("0", 400), time.Minute},
		{"Retry-After-Ms: 9223372036854775807", time.Minute},
		{"Retry-After: -5", 0}, {"Retry-After: +5", 0}, {"Retry-After: 1e3", 0}, {"Retry-After: 0x10", 0}, {"Retry-After: 1_0", 0},
		{"Retry-After: NaN", 0}, {"Retry-After: Inf", 0}, {"Retry-After: .", 0}, {"Retry-After: 1.2.3", 0}, {"Retry-After: 5 seconds", 0},
		{"Retry-After: Sun, 22 Nov 2026 23:00:08 GMT|Date: " + date, 8 * time.Second},
		{"Retry-After: Sunday, 22-Nov-26 23:00:08 GMT|Date: " + date, 8 * time.Second},
		{"Retry-After: Sun Nov 22 23:00:08 2026|Date: " + date, 8 * time.Second},
		{"Retry-After: Sun, 22 Nov 2026 22:59:59 GMT|Date: " + date, 0},
		{"Retry-After: Fri, 31 Dec 9999 23:59:59 GMT|Date: " + date, time.Minute},
		{"Retry-After: Mon, 01 Jan 0001 00:00:00 GMT|Date: Fri, 31 Dec 9999 23:59:59 GMT", 0},
		{"Retry-After: Sun, 22 Nov 2026 20:00:08 GMT", 8 * time.Second},            // no Date: by this machine's clock
		{"Retry-After: Sun, 22 Nov 2026 20:00:08 GMT|Date: noon", 8 * time.Second}, // nor there
		{"Retry-After: Sun, 22 Nov 2026 23:00:08|Date: " + date, 0},                // no zone
		{"Retry-After: Sun, 22 Nov 2026 23:00:08 CET|Date: " + date, 0},
		{"Retry-After: Sunday, 22-Nov-26 23:00:08 EST|Date: " + date, 0}, // time.Parse takes any zone for GMT
		{"Retry-After: 2026-11-22T23:00:08Z|Date: " + date, 0},
		{"Retry-After: later|Retry-After: 4", 4 * time.Second},
	} {
		h := make(http.Header)
		for line := range strings.SplitSeq(c.headers, "|") {
			name, value, _ := strings.Cut(line, ": ")
			h.Add(name, value)
		}
		if got := retryAfter(h, here, time.Minute); got != c.want {
			t.Errorf("%.60q: %v, want %v", c.headers, got, c.want)
		}
	}
}

// FuzzRetryAfter has headers of any form: what is believed is within the bound, and a plain number means what it says.
func FuzzRetryAfter(f *testing.F) {
	for _, value := range []string{"7", "1.5", "-1", "NaN", "1e9", "Sun, 22 Nov 2026 23:00:08 GMT", "Sun Nov 22 23:00:08 2026", "Sunday, 22-Nov-26 23:00:08 GMT"} {
		f.Add(value, "350", "Sun, 22 Nov 2026 23:00:00 GMT", int64(time.Minute))
		f.Add("5", value, value, int64(time.Millisecond))
	}
	f.Fuzz(func(t *testing.T, after, ms, date string, bound int64) {
		bound = max(bound, int64(time.Millisecond)) % int64(longestMaxRetryAfter)
		limit := max(time.Duration(bound), time.Millisecond)
		now := time.Date(2026, 11, 22, 23, 0, 0, 0, time.UTC)
		got := retryAfter(http.Header{"Retry-After": {after}, "Retry-After-Ms": {ms}, "Date": {date}}, now, limit)
		if got < 0 || got > limit {
			t.Fatalf("%v, and the bound is %v", got, limit)
		}
		for value, unit := range map[string]time.Duration{after: time.Second, ms: time.Millisecond} {
			if n, err := strconv.ParseUint(value, 10, 63); err == nil {
				want := limit
				if n <= math.MaxInt64/uint64(unit) {
					want = min(limit, time.Duration(n)*unit)
				}
				if d := duration(value, unit, limit); d != want {
					t.Fatalf("%q of %v: %v, want %v", value, unit, d, want)
				}
			}
		}
	})
}
