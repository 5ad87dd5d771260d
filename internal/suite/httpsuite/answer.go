package httpsuite

import (
	"net/http"
	"time"
)

// An answer is the response that a client received.
type answer struct {
	*testbed
	what   string // the request, for messages
	proto  string
	status int
	header http.Header
	body   string
	took   time.Duration
}

// wantStatus checks the status, and that the handler ran if and only if the status is 200.
func (a answer) wantStatus(status int) {
	a.Helper()
	if a.status != status || (a.body == "served") != (status == http.StatusOK) {
		a.Errorf("%s: got status %d and body %q, want status %d, and the body %q only with 200", a.what, a.status, a.body, status, "served")
	}
}

// want checks the status and the whole body.
func (a answer) want(status int, body string) {
	a.Helper()
	if a.status != status || a.body != body {
		a.Errorf("%s: got status %d and body %q, want %d and %q", a.what, a.status, a.body, status, body)
	}
}

// wantHeaders checks the headers limit, remaining, reset and Retry-After: each has exactly this value, once, or is absent
// if the value is "".
func (a answer) wantHeaders(limit, remaining, reset, retryAfter string) {
	a.Helper()
	a.wantHeader("X-RateLimit-Limit", limit)
	a.wantHeader("X-RateLimit-Remaining", remaining)
	a.wantHeader("X-RateLimit-Reset", reset)
	a.wantHeader("Retry-After", retryAfter)
}

// wantNoHeaders checks that no header is about a limit.
func (a answer) wantNoHeaders() {
	a.Helper()
	a.wantHeaders("", "", "", "")
	for _, name := range []string{"RateLimit", "RateLimit-Policy", "Access-Control-Expose-Headers"} {
		a.wantHeader(name, "")
	}
}

// wantHeader checks that one header has the value, and is set once.
func (a answer) wantHeader(name, want string) {
	a.Helper()
	got := a.header.Values(name)
	if (len(got) > 0) != (want != "") || len(got) > 1 || a.header.Get(name) != want {
		a.Errorf("%s: the header %s is %q, want %q", a.what, name, got, want)
	}
}

// wantDenied checks that the request was denied with 429 and not served.
func (a answer) wantDenied() {
	a.Helper()
	a.wantStatus(http.StatusTooManyRequests)
}

// wantServed checks that the handler served.
func (a answer) wantServed() {
	a.Helper()
	a.wantStatus(http.StatusOK)
}
