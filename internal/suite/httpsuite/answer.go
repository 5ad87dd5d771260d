package httpsuite

import (
	"net/http"
	"time"
)

// An answer is what a client got.
type answer struct {
	*testbed
	what   string // was asked for
	proto  string
	status int
	header http.Header
	body   string
	took   time.Duration
}

// wantStatus checks the status, and that the handler ran if and only if it is 200.
func (a answer) wantStatus(status int) {
	a.Helper()
	if a.status != status || (a.body == "served") != (status == http.StatusOK) {
		a.Errorf("%s: status %d, body %q; want %d", a.what, a.status, a.body, status)
	}
}

// want checks the status and the whole body.
func (a answer) want(status int, body string) {
	a.Helper()
	if a.status != status || a.body != body {
		a.Errorf("%s: status %d, body %q; want %d, %q", a.what, a.status, a.body, status, body)
	}
}

// wantHeaders checks limit, remaining, reset and retry after, each exactly and
// at most once; "" is absent.
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
		a.Errorf("%s: %s: %q, want %q", a.what, name, got, want)
	}
}

// wantDenied checks that the handler did not serve, with 429.
func (a answer) wantDenied() {
	a.Helper()
	a.wantStatus(http.StatusTooManyRequests)
}

// wantServed checks that the handler served.
func (a answer) wantServed() {
	a.Helper()
	a.wantStatus(http.StatusOK)
}
