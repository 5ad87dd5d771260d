package httpsuite

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/keyfunc"
)

// verdictCases test which requests are served, how many units are charged, and the Result that the handler gets.
func verdictCases() []testCase {
	return []testCase{
		{"AllowAndDeny", allowAndDeny, nil},
		{"Skip", skip, nil},
		{"Cost", cost, nil},
		{"HEAD", head, nil},
		{"Result", result, nil},
	}
}

// allowAndDeny also checks that the handler does not run for a denied request: some frameworks run it after a middleware
// has returned, unless the middleware aborts.
func allowAndDeny(b *testbed) {
	var calls atomic.Int64
	s := b.behind(Limit{Limiter: b.limiter(core.TokenBucket(core.PerMinute(3))), Key: keyfunc.IP()}, Route{Path: "/a", Handler: Handler{Calls: &calls}})
	for i, remaining := range []string{"2", "1", "0"} {
		ans := s.get("/a")
		ans.wantServed()
		reset := []string{"1800000033", "1800000053", "1800000073"}[i] // 12.345678 + 20, 40, 60, rounded up
		ans.wantHeaders("3", remaining, reset, "")
	}
	ans := s.get("/a")
	ans.wantDenied()
	ans.wantHeaders("3", "0", "1800000073", "20")

	for _, step := range []struct {
		later      time.Duration
		retryAfter string // rounded up
	}{{999_999 * time.Microsecond, "20"}, {time.Microsecond, "19"}, {18*time.Second + 999_999*time.Microsecond, "1"}} {
		b.advance(step.later)
		ans = s.get("/a")
		ans.wantDenied()
		ans.wantHeaders("3", "0", "1800000073", step.retryAfter)
	}
	b.advance(time.Microsecond)
	ans = s.get("/a")
	ans.wantServed()
	ans.wantHeaders("3", "0", "1800000093", "")
	if n := calls.Load(); n != 4 {
		b.Errorf("the handler ran %d times, want 4: once for each admitted request", n)
	}
}

func skip(b *testbed) {
	limit := b.fixed(1)
	limit.Options = []guard.Option{guard.Skip(func(r keyfunc.Request) bool { return r.Path() == "/healthz" })}
	s := b.behind(limit, Route{Path: "/healthz"}, Route{Path: "/other"})
	for range 3 {
		ans := s.get("/healthz")
		ans.wantServed()
		ans.wantNoHeaders()
	}
	s.get("/other").wantServed()
	s.get("/other").wantDenied()
	s.get("/healthz").wantServed()
}

func cost(b *testbed) {
	limit := b.fixed(10)
	limit.Options = []guard.Option{guard.Cost(func(r keyfunc.Request) int64 {
		switch r.Method() {
		case http.MethodPost:
			return 5
		case http.MethodPut:
			return -5
		case http.MethodOptions:
			return 0
		}
		return 1
	})}
	s := b.behind(limit)
	for _, step := range []struct {
		method    string
		status    int
		remaining string
	}{
		{http.MethodPost, http.StatusOK, "5"},
		{http.MethodGet, http.StatusOK, "4"},
		{http.MethodPost, http.StatusTooManyRequests, "4"},
		{http.MethodPut, http.StatusOK, "3"}, // a negative cost is charged 1
		{http.MethodOptions, http.StatusOK, "3"},
		{http.MethodPut, http.StatusOK, "2"},
	} {
		ans := s.send(step.method, "/a")
		ans.wantStatus(step.status)
		ans.wantHeader("X-RateLimit-Remaining", step.remaining)
	}
	if n := b.logs.Count("level=ERROR"); n != 1 {
		b.Errorf("%d errors were logged, want 1, about the negative cost", n)
	}
}

// head checks that HEAD counts like GET and has the same headers.
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

// result checks that a handler gets a Result if a limiter decided, and only then.
func result(b *testbed) {
	shows := Handler{Do: ShowResult}
	limit := b.fixed(9)
	limit.Options = []guard.Option{
		guard.Skip(func(r keyfunc.Request) bool { return r.Method() == http.MethodOptions }),
		estimate(4),
	}
	s := b.serve(App{Routes: []Route{{Path: "/bare", Handler: shows}, {Path: "/a", Use: []Mount{limit}, Handler: shows}}})
	s.get("/bare").want(http.StatusOK, "no result")
	s.get("/a").want(http.StatusOK, "fixed-1m allowed=true limit=9 remaining=5 delay=0s")
	s.send(http.MethodOptions, "/a").want(http.StatusOK, "no result")
	s.get("/a").want(http.StatusOK, "fixed-1m allowed=true limit=9 remaining=1 delay=0s")
	s.get("/bare").want(http.StatusOK, "no result") // no Result stays in an object that the framework reuses
}
