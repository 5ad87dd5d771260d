package httplimit

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestRetryAfter parses headers as servers and attackers write them. By the server's clock, the response was sent at 23:00:00.
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
		{"Retry-After: Sun, 22 Nov 2026 20:00:08 GMT", 8 * time.Second},            // without a Date, this machine's clock counts
		{"Retry-After: Sun, 22 Nov 2026 20:00:08 GMT|Date: noon", 8 * time.Second}, // nor with a wrong Date
		{"Retry-After: Sun, 22 Nov 2026 23:00:08|Date: " + date, 0},                // no time zone
		{"Retry-After: Sun, 22 Nov 2026 23:00:08 CET|Date: " + date, 0},
		{"Retry-After: Sunday, 22-Nov-26 23:00:08 EST|Date: " + date, 0}, // time.Parse reads any time zone as GMT
		{"Retry-After: 2026-11-22T23:00:08Z|Date: " + date, 0},
		{"Retry-After: later|Retry-After: 4", 4 * time.Second},
		{"Retry-After: 30, 30", 30 * time.Second}, // two lines that a proxy has joined
		{"Retry-After: 3,soon, 9", 9 * time.Second},
		{"Retry-After-Ms: 350, 350|Retry-After: 1, 1", 350 * time.Millisecond},
		{"Retry-After: Sun, 22 Nov 2026 23:00:08 UTC|Date: " + date, 8 * time.Second},
		{"Retry-After: Sun, 22 Nov 2026 23:00:08 +0000|Date: " + date, 8 * time.Second},
		{"Retry-After: Sun, 22 Nov 2026 23:00:08 +0100|Date: " + date, 0},
		{"Retry-After: 1795388408|Date: " + date, 8 * time.Second}, // Unix time
		{"Retry-After: 1795388408500|Date: " + date, 8500 * time.Millisecond},
		{"Retry-After: 1795388399|Date: " + date, 0},
		{"Retry-After: 1795388300000|Date: " + date, 0},
	} {
		h := headersOf(strings.Split(c.headers, "|")...)
		if got := retryAfter(h, here, time.Minute); got != c.want {
			t.Errorf("%.60q: got %v, want %v", c.headers, got, c.want)
		}
	}
}

// TestTransportSaysStop checks how long the Transport holds requests back after answers as these APIs document them, which were sent at
// Unix time 1_800_000_000. Some of the answers are not about a limit.
func TestTransportSaysStop(t *testing.T) {
	t.Parallel()
	const date = "|Date: Fri, 15 Jan 2027 08:00:00 GMT"
	for _, c := range []struct {
		api     string
		status  int
		headers string
		want    time.Duration // 0 if the next request need not wait
	}{
		{"GitHub, primary limit", 403, "X-RateLimit-Limit: 60|X-RateLimit-Remaining: 0|X-RateLimit-Reset: 1800000042", 42 * time.Second},
		{"GitHub, primary limit", 429, "X-RateLimit-Limit: 60|X-RateLimit-Remaining: 0|X-RateLimit-Reset: 1800003600", time.Minute},
		{"GitHub, secondary limit", 403, "Retry-After: 30|X-RateLimit-Remaining: 4987|X-RateLimit-Reset: 1800003600", 30 * time.Second},
		{"GitHub, secondary limit", 403, "Retry-After: 30|X-RateLimit-Remaining: 0|X-RateLimit-Reset: 1800003600", 30 * time.Second},
		{"GitHub, no permission", 403, "X-RateLimit-Limit: 5000|X-RateLimit-Remaining: 4987|X-RateLimit-Reset: 1800003600", 0},
		{"GitLab", 429, "RateLimit-Limit: 60|RateLimit-Observed: 67|RateLimit-Remaining: 0|RateLimit-Reset: 1800000030|RateLimit-ResetTime: Fri, 15 Jan 2027 08:00:30 GMT|Retry-After: 30", 30 * time.Second},
		{"GitLab, before Retry-After", 429, "RateLimit-Limit: 60|RateLimit-Observed: 67|RateLimit-Remaining: 0|RateLimit-Reset: 1800000030", 30 * time.Second},
		{"GitLab, headers of another limit", 429, "RateLimit-Limit: 600|RateLimit-Remaining: 595|RateLimit-Reset: 1800000060", time.Second},
		{"Discord", 429, "Retry-After: 44|X-RateLimit-Limit: 10|X-RateLimit-Remaining: 0|X-RateLimit-Reset: 1800000043.57|X-RateLimit-Reset-After: 43.57|X-RateLimit-Bucket: abcd1234|X-RateLimit-Scope: user", 44 * time.Second},
		{"Discord, global", 429, "Retry-After: 44|X-RateLimit-Global: true|X-RateLimit-Scope: global", 44 * time.Second},
		{"Slack", 429, "Retry-After: 30", 30 * time.Second},
		{"Stripe", 429, "Stripe-Rate-Limited-Reason: global-rate", time.Second},
		{"OpenAI", 429, "Retry-After-Ms: 1200|Retry-After: 2|X-RateLimit-Remaining-Requests: 0|X-RateLimit-Reset-Requests: 1.2s|X-RateLimit-Reset-Tokens: 6m0s", 1200 * time.Millisecond},
		{"OpenAI, overloaded", 503, "Retry-After: 5", 5 * time.Second},
		{"OpenAI, another reset", 429, "X-RateLimit-Remaining-Tokens: 0|X-RateLimit-Reset-Tokens: 6m0s", time.Second},
		{"IETF draft", 429, `RateLimit: "default";r=0;t=50`, 50 * time.Second},
		{"IETF draft", 403, `RateLimit: "burst" ; r=0 ; t=5, "daily";r=7;t=55, "hourly";t=20;r=0|RateLimit: "user";r=0;t=9`, 20 * time.Second},
		{"IETF draft, not used up", 403, `RateLimit: "default";r=1;t=50`, 0},
		{"IETF draft, no time", 403, `RateLimit: "default";r=0`, 0},
		{"drafts before the seventh", 403, "RateLimit-Remaining: 0|RateLimit-Reset: 12", 12 * time.Second},
		{"seconds from now", 403, "X-RateLimit-Remaining: 0|X-RateLimit-Reset: 1.5", 1500 * time.Millisecond},
		{"OpenRouter", 429, "X-RateLimit-Limit: 20|X-RateLimit-Remaining: 0|X-RateLimit-Reset: 1800000002000", 2 * time.Second},
		{"OpenRouter", 429, "X-RateLimit-Remaining: 0|X-RateLimit-Reset: 1799999999000", time.Second},
		{"Okta", 429, "X-Rate-Limit-Limit: 600|X-Rate-Limit-Remaining: 0|X-Rate-Limit-Reset: 1800000045", 45 * time.Second},
		{"X", 429, "X-Rate-Limit-Limit: 15|X-Rate-Limit-Remaining: 0|X-Rate-Limit-Reset: 1800000900", time.Minute},
		{"Reddit", 429, "X-RateLimit-Used: 100|X-RateLimit-Remaining: 0.0|X-RateLimit-Reset: 45", 45 * time.Second},
		{"Reddit", 403, "X-RateLimit-Remaining: 0.0|X-RateLimit-Reset: 45", 45 * time.Second},
		{"Reddit, not used up", 403, "X-RateLimit-Remaining: 0.5|X-RateLimit-Reset: 45", 0},
		{"below 0", 403, "X-RateLimit-Remaining: -1|X-RateLimit-Reset: 45", 45 * time.Second},
		{"lines that a proxy has joined", 403, "X-RateLimit-Remaining: 0, 0|X-RateLimit-Reset: 45, 45", 45 * time.Second},
		{"no number", 403, "X-RateLimit-Remaining: -|X-RateLimit-Reset: 45", 0},
		{"IETF, draft 7", 429, "RateLimit: limit=100, remaining=0, reset=33|RateLimit-Policy: 100;w=60", 33 * time.Second},
		{"IETF, draft 7, not used up", 403, "RateLimit: limit=100, remaining=2, reset=33", 0},
		{"Atlassian", 429, "X-RateLimit-Remaining: 0|X-RateLimit-Reset: 2027-01-15T08:00:21Z", 21 * time.Second},
		{"Atlassian", 429, "X-RateLimit-Remaining: 0|X-RateLimit-Reset: 2027-01-15T09:00:21.5+01:00", 21500 * time.Millisecond},
		{"a duration", 429, "X-RateLimit-Remaining: 0|X-RateLimit-Reset: 20s", 20 * time.Second},
		{"a duration", 429, "X-RateLimit-Remaining: 0|X-RateLimit-Reset: -20s", time.Second},
		{"a duration", 429, "X-RateLimit-Remaining: 0|X-RateLimit-Reset: 2540400h", time.Minute},
		{"Anthropic, overloaded", 529, "Retry-After: 7", 7 * time.Second},
		{"Anthropic, overloaded", 529, "", 0},
		{"a Reset alone", 429, "X-RateLimit-Reset: 12", 12 * time.Second},
		{"a Reset alone", 403, "X-RateLimit-Reset: 12", 0},
		{"no Reset", 403, "X-RateLimit-Remaining: 0", 0},
		{"several lines", 403, "X-RateLimit-Remaining: 5|X-RateLimit-Remaining: 0|X-RateLimit-Reset: 3|X-RateLimit-Reset: 9", 9 * time.Second},
		{"not when it is served", 200, "X-RateLimit-Remaining: 0|X-RateLimit-Reset: 12", 0},
		{"not when it fails", 503, "X-RateLimit-Remaining: 0|X-RateLimit-Reset: 12", 0},
		{"the past", 403, "X-RateLimit-Remaining: 0|X-RateLimit-Reset: 1799999999", 0},
		{"the past", 429, "X-RateLimit-Remaining: 0|X-RateLimit-Reset: 1799999999", time.Second},
		{"the last of the years", 403, "X-RateLimit-Remaining: 0|X-RateLimit-Reset: 99999999999999999999", time.Minute},
		{"31 years from now", 403, "X-RateLimit-Remaining: 0|X-RateLimit-Reset: 999999999", time.Minute},
		{"no number", 403, "X-RateLimit-Remaining: 0|X-RateLimit-Reset: -5|RateLimit-Remaining: 0|RateLimit-Reset: soon", 0},
	} {
		h := headersOf(strings.Split(c.headers+date, "|")...)
		tr := &transport{bound: time.Minute}
		least, most := c.want, min(c.want+c.want/10, time.Minute)
		if c.want == time.Minute { // the API says more than the bound: the wait is up to a tenth shorter than the bound
			least -= c.want / 10
		}
		if got := tr.asked(&http.Response{StatusCode: c.status, Header: h}); got < least || got > most {
			t.Errorf("%s: status %d with %q: got %v, want %v to %v", c.api, c.status, c.headers, got, least, most)
		}
	}
	now := time.Unix(1_800_000_000, 0)
	without := http.Header{"X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {"1800000042"}} // no Date
	if got := untilReset(without, false, now, time.Minute); got != 42*time.Second {
		t.Errorf("without a Date: got %v, want 42s by this machine's clock", got)
	}
}

// FuzzRetryAfter parses headers of any form: the result must be within the bound, and a plain number must mean as many seconds or
// milliseconds.
func FuzzRetryAfter(f *testing.F) {
	for _, value := range []string{
		"7", "1.5", "-1", "NaN", "1e9", "Sun, 22 Nov 2026 23:00:08 GMT", "Sun Nov 22 23:00:08 2026", "Sunday, 22-Nov-26 23:00:08 GMT",
		"1800000000", "2027-01-15T08:00:21Z", `"default";r=0;t=9`,
	} {
		f.Add(value, "350", "Sun, 22 Nov 2026 23:00:00 GMT", int64(time.Minute))
		f.Add("5", value, value, int64(time.Millisecond))
	}
	f.Fuzz(func(t *testing.T, after, ms, date string, bound int64) {
		bound = max(bound, int64(time.Millisecond)) % int64(longestMaxRetryAfter)
		limit := max(time.Duration(bound), time.Millisecond)
		now := time.Date(2026, 11, 22, 23, 0, 0, 0, time.UTC)
		got := retryAfter(http.Header{"Retry-After": {after}, "Retry-After-Ms": {ms}, "Date": {date}}, now, limit)
		reset := untilReset(http.Header{"X-Ratelimit-Reset": {after}, "Ratelimit-Reset": {ms}, "Ratelimit": {date}, "Date": {date}}, true, now, limit)
		if got < 0 || got > limit || reset < 0 || reset > limit {
			t.Fatalf("got the wait %v, and %v until the reset, want 0 to the bound %v", got, reset, limit)
		}
		tr := &transport{bound: limit}
		for _, h := range []http.Header{
			{"Retry-After": {after}, "Retry-After-Ms": {ms}, "Date": {date}},
			{"X-Ratelimit-Remaining": {ms}, "X-Ratelimit-Reset": {after}, "Ratelimit": {date}, "Date": {date}},
			{"X-Rate-Limit-Reset": {after}, "Ratelimit": {after, ms}, "Ratelimit-Remaining": {"0"}, "Ratelimit-Reset": {date, ms}},
		} {
			for _, status := range []int{403, 429, 503, 529} {
				if got := tr.asked(&http.Response{StatusCode: status, Header: h}); got < 0 || got > limit || got == 0 && status == 429 {
					t.Fatalf("status %d with %q: got the wait %v, want at most the bound %v, and not 0 for 429", status, h, got, limit)
				}
			}
		}
		for value, unit := range map[string]time.Duration{after: time.Second, ms: time.Millisecond} {
			if n, err := strconv.ParseUint(value, 10, 63); err == nil {
				want := limit
				if n <= math.MaxInt64/uint64(unit) {
					want = min(limit, time.Duration(n)*unit)
				}
				if d := duration(value, unit, limit); d != want {
					t.Fatalf("%q in units of %v: got %v, want %v", value, unit, d, want)
				}
			}
		}
	})
}
