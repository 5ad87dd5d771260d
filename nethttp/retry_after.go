package httplimit

import (
	"iter"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// retryAfter returns how long the server that sent h wants no more requests, at most bound; 0 if h does not
// say. If there are several values, the longest counts, even if a proxy has joined their lines. now is used
// for dates if the response has no Date.
func retryAfter(h http.Header, now time.Time, bound time.Duration) time.Duration {
	var longest time.Duration
	for value := range elements(h.Values("Retry-After-Ms")) {
		longest = max(longest, duration(value, time.Millisecond, bound))
	}
	if longest > 0 { // Retry-After says the same, but rounded to seconds
		return longest
	}
	lines, sent := h.Values("Retry-After"), sentAt(h, now)
	for _, value := range lines {
		if at, err := httpDate(value); err == nil {
			longest = max(longest, min(at.Sub(sent), bound))
		}
	}
	for value := range elements(lines) {
		longest = max(longest, untilNumber(value, sent, bound))
	}
	return longest
}

// prefixes are the prefixes of Limit, Remaining and Reset: the usual one, the one of the IETF's first
// drafts, and the one of Okta and X.
var prefixes = []string{"X-RateLimit-", "RateLimit-", "X-Rate-Limit-"}

// untilReset returns how long it takes until the limits that h shows as used up come back, at most bound; 0
// if h does not say. If denied is set, a Reset without a Remaining counts as well.
func untilReset(h http.Header, denied bool, now time.Time, bound time.Duration) time.Duration {
	var longest time.Duration
	sent := sentAt(h, now)
	for _, prefix := range prefixes {
		remaining := h.Values(prefix + "Remaining")
		if !usedUp(remaining...) && (!denied || len(remaining) > 0) {
			continue
		}
		for value := range elements(h.Values(prefix + "Reset")) {
			longest = max(longest, untilInstant(value, sent, bound))
		}
	}
	for _, line := range h.Values("RateLimit") {
		longest = max(longest, untilDraft7(line, sent, bound))
		for limit := range strings.SplitSeq(line, ",") { // the present draft: "name";r=0;t=30
			values := parameters(limit, ";")
			if usedUp(values["r"]) {
				longest = max(longest, duration(values["t"], time.Second, bound))
			}
		}
	}
	return longest
}

// untilDraft7 parses RateLimit in the form of the IETF's seventh draft: limit=100, remaining=0, reset=30.
func untilDraft7(line string, sent time.Time, bound time.Duration) time.Duration {
	values := parameters(line, ",")
	if !usedUp(values["remaining"]) {
		return 0
	}
	return untilNumber(values["reset"], sent, bound)
}

// parameters returns the values of "name=value" parts.
func parameters(text, separator string) map[string]string {
	values := make(map[string]string)
	for part := range strings.SplitSeq(text, separator) {
		if name, value, ok := strings.Cut(strings.TrimSpace(part), "="); ok {
			values[name] = value
		}
	}
	return values
}

// elements returns the values in the lines of a header. A line may have several values with commas between
// them.
func elements(lines []string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, line := range lines {
			for value := range strings.SplitSeq(line, ",") {
				if !yield(strings.TrimSpace(value)) {
					return
				}
			}
		}
	}
}

// usedUp reports whether any value of Remaining is a number of 0 or less, such as 0, 0.0 or -1.
func usedUp(remaining ...string) bool {
	for value := range elements(remaining) {
		n, err := strconv.ParseFloat(value, 64)
		if err == nil && n <= 0 && strings.Trim(value, "0123456789.-") == "" {
			return true
		}
	}
	return false
}

// untilInstant returns the time until a Reset, at most bound. value is a number, an instant of ISO 8601 or
// a duration such as "1m30s".
func untilInstant(value string, sent time.Time, bound time.Duration) time.Duration {
	if at, err := time.Parse(time.RFC3339, value); err == nil {
		return max(0, min(at.Sub(sent), bound))
	}
	if d, err := time.ParseDuration(value); err == nil && value != "0" {
		return max(0, min(d, bound))
	}
	return untilNumber(value, sent, bound)
}

// Numbers below firstUnix are a number of seconds. From firstUnix on they are Unix times in seconds, in the
// year 2001 or later. From firstUnixMilli on they are Unix times in milliseconds, in the year 1973 or
// later.
const firstUnix, firstUnixMilli = 1e9, 1e11

// untilNumber returns the time until the instant that a number means, at most bound; 0 if value is not a
// plain number.
func untilNumber(value string, sent time.Time, bound time.Duration) time.Duration {
	n := number(value)
	switch {
	case n >= firstUnixMilli:
		n = n/1000 - unixSeconds(sent)
	case n >= firstUnix:
		n -= unixSeconds(sent)
	}
	return within(n, time.Second, bound)
}

func unixSeconds(t time.Time) float64 { return float64(t.Unix()) + float64(t.Nanosecond())/1e9 }

// sentAt returns when a response was sent, by the server's clock, to which its dates refer. It returns now
// if the response does not say.
func sentAt(h http.Header, now time.Time) time.Time {
	sent, err := httpDate(h.Get("Date"))
	if err != nil {
		return now
	}
	return sent
}

// duration returns a number of units of time, rounded up, at most bound; 0 if value is not a plain number.
func duration(value string, unit, bound time.Duration) time.Duration {
	return within(number(value), unit, bound)
}

// number returns the value of a plain number, which may have a fraction, and 0 for other text.
func number(value string) float64 {
	if strings.Trim(value, "0123456789.") != "" { // no sign, no exponent, no NaN
		return 0
	}
	n, _ := strconv.ParseFloat(value, 64) // 0 for other text, and infinity for a number that is too large
	return n
}

// within returns n units of time, rounded up, from 0 to bound.
func within(n float64, unit, bound time.Duration) time.Duration {
	if n >= float64(bound)/float64(unit) {
		return bound
	}
	return max(0, time.Duration(math.Ceil(n*float64(unit))))
}

// httpDate parses a date in one of the three forms of RFC 9110. It accepts only GMT as the zone, or UTC or
// +0000, which some servers write instead: time.Parse would read any other zone as GMT. The form of asctime
// has no zone and means GMT.
func httpDate(value string) (time.Time, error) {
	for _, zone := range []string{" GMT", " UTC", " +0000"} {
		if date, ok := strings.CutSuffix(value, zone); ok {
			return http.ParseTime(date + " GMT")
		}
	}
	return time.Parse(time.ANSIC, value)
}
