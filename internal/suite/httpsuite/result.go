package httpsuite

import (
	"net/http"

	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/keyfunc"
)

// resultCases are about the decision that a handler gets.
func resultCases() []testCase {
	return []testCase{
		{"Result", result, nil},
	}
}

// result is there where a limiter decided, and nowhere else.
func result(b *testbed) {
	shows := Handler{Do: ShowResult}
	limit := b.fixed(9)
	limit.Options = []guard.Option{
		guard.Skip(func(r keyfunc.Request) bool { return r.Method() == http.MethodOptions }),
		guard.Cost(func(keyfunc.Request) int64 { return 4 }),
	}
	s := b.serve(App{Routes: []Route{{Path: "/bare", Handler: shows}, {Path: "/a", Use: []Mount{limit}, Handler: shows}}})
	s.get("/bare").want(http.StatusOK, "no result")
	s.get("/a").want(http.StatusOK, "fixed-1m allowed=true limit=9 remaining=5 delay=0s")
	s.send(http.MethodOptions, "/a").want(http.StatusOK, "no result")
	s.get("/a").want(http.StatusOK, "fixed-1m allowed=true limit=9 remaining=1 delay=0s")
	s.get("/bare").want(http.StatusOK, "no result") // nothing stays in what the framework reuses
}
