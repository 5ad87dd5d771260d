package httpsuite

import (
	"net/http"

	"github.com/redislimit/redislimit/core/guard"
)

// methodCases are about requests that are not for the body.
func methodCases() []testCase {
	return []testCase{
		{"HEAD", head, nil},
		{"Preflight", preflight, nil},
	}
}

// head counts as GET does, and has the same headers.
func head(b *testbed) {
	s := b.behind(b.fixed(2))
	for _, step := range []struct {
		status                int
		remaining, retryAfter string
	}{{200, "1", ""}, {200, "0", ""}, {429, "0", "60"}} {
		ans := s.send(http.MethodHead, "/a")
		ans.want(step.status, "")
		ans.wantHeaders("2", step.remaining, "1800000073", step.retryAfter)
	}
	s.get("/a").wantDenied()
}

const allowOrigin = "Access-Control-Allow-Origin"

// preflight is a request as any other. The 429 has the headers of the app's CORS
// middleware as well: without them a script could not even see the status.
func preflight(b *testbed) {
	limit := b.fixed(1)
	limit.Options = []guard.Option{guard.ExposeHeaders()}
	s := b.serve(App{Use: []Mount{SetHeader{allowOrigin, "https://app.test"}, limit}, Routes: []Route{{Path: "/a"}}})
	for _, status := range []int{http.StatusOK, http.StatusTooManyRequests} {
		ans := s.send(http.MethodOptions, "/a", "Origin: https://app.test", "Access-Control-Request-Method: PUT")
		ans.wantStatus(status)
		ans.wantHeader(allowOrigin, "https://app.test")
		ans.wantHeader("X-RateLimit-Remaining", "0")
		ans.wantExposed("x-ratelimit-limit x-ratelimit-remaining x-ratelimit-reset retry-after")
	}
}
