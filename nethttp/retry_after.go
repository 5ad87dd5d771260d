package httplimit

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// retryAfter returns for how long the other side, which answered with h, wants no more requests, at most bound; 0 if it
// does not say. Of several lines the longest counts. now is for dates of an answer without a Date of its own.
func retryAfter(h http.Header, now time.Time, bound time.Duration) time.Duration {
	var longest time.Duration
	for _, value := range h.Values("Retry-After-Ms") {
		longest = max(longest, duration(value, time.Millisecond, bound))
	}
	if longest > 0 { // it says the same, and is not rounded to seconds
		return longest
	}
	sent, err := httpDate(h.Get("Date"))
	if err != nil {
		sent = now
	}
	for _, value := range h.Values("Retry-After") {
		longest = max(longest, duration(value, time.Second, bound))
		if at, err := httpDate(value); err == nil {
			longest = max(longest, min(at.Sub(sent), bound))
		}
	}
	return longest
}

// duration returns so many units of time, rounded up, at most bound; 0 if value is not a plain number. Some write seconds
// with a fraction.
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

// httpDate parses a date in the three forms of RFC 9110. It says GMT, because time.Parse takes any other zone for it;
// the form of asctime alone has no zone, and means GMT.
func httpDate(value string) (time.Time, error) {
	if strings.HasSuffix(value, " GMT") {
		return http.ParseTime(value)
	}
	return time.Parse(time.ANSIC, value)
}
