package httpsuite

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/keyfunc"
)

// failureCases are about requests that cannot be decided on as usual: none of them
// passes unlimited unless configured to, and no answer has the cause.
func failureCases() []testCase {
	return []testCase{
		{"KeyError", keyError, nil},
		{"EmptyKey", emptyKey, nil},
		{"Unavailable", unavailable, nil},
		{"FailOpen", failOpen, nil},
		{"FailLocal", failLocal, nil},
		{"FailLocalShare", failLocalShare, nil},
	}
}

// wantHidden checks that the client sees nothing of the cause.
func (a answer) wantHidden(cause string) {
	a.Helper()
	if text := fmt.Sprint(a.header, a.body); strings.Contains(text, cause) {
		a.Errorf("the answer has the cause: %s", text)
	}
}

// wantLogged checks that the log has it.
func (b *testbed) wantLogged(cause string) {
	b.Helper()
	if b.logs.Count(cause) == 0 {
		b.Errorf("nothing is logged about %s", cause)
	}
}

func (b *testbed) broken() Limit {
	limit := b.fixed(1)
	limit.Key = func(keyfunc.Request) (string, error) { return "", errors.New("broken: secret detail") }
	return limit
}

// keyError has the key function fail, or return nothing, which no client can wait out.
func keyError(b *testbed) { b.failsByKey(b.broken(), "secret detail") }
func emptyKey(b *testbed) {
	limit := b.fixed(1)
	limit.Key = func(keyfunc.Request) (string, error) { return "", nil }
	b.failsByKey(limit, core.ErrInvalidKey.Error())
}

func (b *testbed) failsByKey(limit Limit, cause string) {
	b.Helper()
	s := b.serve(App{Use: []Mount{limit}, Routes: []Route{{Path: "/a"}}})
	for range 2 {
		ans := s.get("/a")
		ans.wantStatus(http.StatusInternalServerError)
		ans.wantNoHeaders()
		ans.wantHidden(cause)
	}
	b.wantLogged("level=ERROR")
	b.wantLogged(cause)
	b.wantLeft(limit.Limiter, fallbackKey, 1)
}

// unavailable stops Redis for a while. The log has it once, maybe later than the
// first client.
func unavailable(b *testbed) {
	limit := b.fixed(2)
	s := b.serve(App{Use: []Mount{limit}, Routes: []Route{{Path: "/a"}}})
	s.get("/a").wantServed()
	b.redis.SetError("LOADING secret detail")
	b.until("logged", func() bool {
		ans := s.get("/a")
		ans.wantStatus(http.StatusServiceUnavailable)
		ans.wantHeaders("", "", "", "1")
		ans.wantHidden("secret detail")
		return b.logs.Count("secret detail") > 0
	})
	b.redis.SetError("")
	b.until("served again", func() bool { return s.get("/a").status == http.StatusOK }) // the circuit breaker may be open
	s.get("/a").wantDenied()
}

// outage serves what shows the result, behind a limit of 1 over a Redis that is
// away.
func (b *testbed) outage(policy core.Option) *servedApp {
	b.redis.SetError("LOADING secret detail")
	lim := core.MustNew(b.client, "api", core.FixedWindow(core.PerMinute(1)), policy)
	return b.behind(Limit{Limiter: lim, Key: keyfunc.IP()}, Route{Path: "/a", Handler: Handler{Do: ShowResult}})
}

// failOpen serves all requests, without a decision and without headers.
func failOpen(b *testbed) {
	s := b.outage(core.FailOpen())
	for range 3 {
		ans := s.get("/a")
		ans.want(http.StatusOK, "no result")
		ans.wantNoHeaders()
	}
}

// failLocal goes on limiting, with headers, by the count of this process.
func failLocal(b *testbed) {
	s := b.outage(core.FailLocal())
	s.get("/a").want(http.StatusOK, "fixed-1m allowed=true limit=1 remaining=0 delay=0s")
	ans := s.get("/a")
	ans.wantDenied()
	ans.wantHeader("X-RateLimit-Limit", "1")
	ans.wantHeader("X-RateLimit-Remaining", "0")
	if ans.header.Get("Retry-After") == "" {
		b.Error("no Retry-After")
	}
}

// failLocalShare has a cost above this process's share of the limit: that is no mistake of
// the configuration, and not logged as one.
func failLocalShare(b *testbed) {
	b.redis.SetError("LOADING secret detail")
	lim := core.MustNew(b.client, "api", core.FixedWindow(core.PerMinute(10)), core.FailLocal(), core.Processes(10))
	cost := estimate(5)
	b.behind(Limit{Limiter: lim, Key: keyfunc.IP(), Options: []guard.Option{cost}}).get("/a").wantDenied()
	if b.logs.Count("can never be admitted") > 0 {
		b.Errorf("the log has %s", b.logs.String())
	}
}
