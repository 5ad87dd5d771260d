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

// failureCases test requests that cannot be decided as usual: none of them passes unlimited unless this is configured, and
// no response contains the cause.
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

// wantHidden checks that the response does not contain the cause.
func (a answer) wantHidden(cause string) {
	a.Helper()
	if text := fmt.Sprint(a.header, a.body); strings.Contains(text, cause) {
		a.Errorf("the response contains the cause %q: %s", cause, text)
	}
}

// wantLogged checks that the log contains the cause.
func (b *testbed) wantLogged(cause string) {
	b.Helper()
	if b.logs.Count(cause) == 0 {
		b.Errorf("the log does not contain %q", cause)
	}
}

// broken returns a limit whose key function fails.
func (b *testbed) broken() Limit {
	limit := b.fixed(1)
	limit.Key = func(keyfunc.Request) (string, error) { return "", errors.New("broken: secret detail") }
	return limit
}

// keyError uses a key function that fails: no client can wait for this to pass.
func keyError(b *testbed) { b.failsByKey(b.broken(), "secret detail") }

// emptyKey uses a key function that returns an empty key.
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

// unavailable makes Redis fail for a while. The log says so once, maybe later than the first client gets its response.
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

// outage serves a handler that shows the Result, behind a limit of 1 over a Redis that is away.
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

// failLocal checks that requests are still limited, with headers, by the count of this process.
func failLocal(b *testbed) {
	s := b.outage(core.FailLocal())
	s.get("/a").want(http.StatusOK, "fixed-1m allowed=true limit=1 remaining=0 delay=0s")
	ans := s.get("/a")
	ans.wantDenied()
	ans.wantHeader("X-RateLimit-Limit", "1")
	ans.wantHeader("X-RateLimit-Remaining", "0")
	if ans.header.Get("Retry-After") == "" {
		b.Error("the response has no Retry-After, want one")
	}
}

// failLocalShare uses a cost above this process's share of the limit. This is no mistake of the configuration, and must not
// be logged as one.
func failLocalShare(b *testbed) {
	b.redis.SetError("LOADING secret detail")
	lim := core.MustNew(b.client, "api", core.FixedWindow(core.PerMinute(10)), core.FailLocal(), core.Processes(10))
	cost := estimate(5)
	b.behind(Limit{Limiter: lim, Key: keyfunc.IP(), Options: []guard.Option{cost}}).get("/a").wantDenied()
	if b.logs.Count("can never be admitted") > 0 {
		b.Errorf("the log has %s, want no line about a cost that can never be admitted", b.logs.String())
	}
}
