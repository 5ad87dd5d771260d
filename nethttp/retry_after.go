package httplimit

import (
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// retryAfter returns for how long the other side, which answered with h, wants no more requests, at
// most bound; 0 if it does not say. Of several lines the longest counts. now is for dates of an
// answer without a Date of its own.
func retryAfter(h http.Header, now time.Time, bound time.Duration) time.Duration {
	var longest time.Duration
	for _, value := range h.Values("Retry-After-Ms") {
		longest = max(longest, duration(value, time.Millisecond, bound))
	}
	if longest > 0 { // it says the same, and is not rounded to seconds
		return longest
	}
	sent := sentAt(h, now)
	for _, value := range h.Values("Retry-After") {
		longest = max(longest, duration(value, time.Second, bound))
		if at, err := httpDate(value); err == nil {
			longest = max(longest, min(at.Sub(sent), bound))
		}
	}
	return longest
}

// untilReset returns when a limit comes back that is used up by h, in at most bound; 0 if h does
// not say so. Where denied is set, a Reset without a Remaining counts, too.
func untilReset(h http.Header, denied bool, now time.Time, bound time.Duration) time.Duration {
	var longest time.Duration
	sent := sentAt(h, now)
	for _, prefix := range []string{"X-RateLimit-", "RateLimit-"} {
		remaining := h.Values(prefix + "Remaining")
		if !slices.Contains(remaining, "0") && (!denied || len(remaining) > 0) {
			continue
		}
		for _, value := range h.Values(prefix + "Reset") {
			d := duration(value, time.Second, math.MaxInt64)
			if d >= firstUnix {
				d = time.Unix(0, int64(d)).Sub(sent)
			}
			longest = max(longest, min(d, bound))
		}
	}
	for _, line := range h.Values("RateLimit") {
		for limit := range strings.SplitSeq(line, ",") { // "name";r=0;t=30
			var remaining, reset string
			for parameter := range strings.SplitSeq(limit, ";") {
				switch name, value, _ := strings.Cut(strings.TrimSpace(parameter), "="); name {
				case "r":
					remaining = value
				case "t":
					reset = value
				}
			}
			if remaining == "0" {
				longest = max(longest, duration(reset, time.Second, bound))
			}
		}
	}
	return longest
}

// firstUnix is the least Reset that is taken for Unix time, of the year 2001. A smaller one is from
// now.
const firstUnix = 1e9 * time.Second

// sentAt returns when an answer was sent, by the other side's clock, which its dates are of; now if
// it does not say.
func sentAt(h http.Header, now time.Time) time.Time {
	sent, err := httpDate(h.Get("Date"))
	if err != nil {
		return now
	}
	return sent
}

// duration returns so many units of time, rounded up, at most bound; 0 if value is not a plain
// number. Some write seconds with a fraction.
func duration(value string, unit, bound time.Duration) time.Duration {
	if strings.Trim(value, "0123456789.") != "" { // no sign, no exponent, no NaN
		return 0
	}
	n, _ := strconv.ParseFloat(value, 64) // 0 of what is no number, and infinite of one that is too great
	if n >= float64(bound)/float64(unit) {
		return bound
	}
	return time.Duration(math.Ceil(n * float64(unit)))
}

// httpDate parses a date in the three forms of RFC 9110. It says GMT, because time.Parse takes any
// other zone for it; the form of asctime alone has no zone, and means GMT.
func httpDate(value string) (time.Time, error) {
	if strings.HasSuffix(value, " GMT") {
		return http.ParseTime(value)
	}
	return time.Parse(time.ANSIC, value)
}
