package httpsuite

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/keyfunc"
)

// Exercise runs every case through the adapter a.
func Exercise(t *testing.T, a Adapter) {
	for name, run := range map[string]func(*testing.T, Adapter){
		"AllowAndDeny": allowAndDeny,
		"Never":        never,
		"Skip":         skip,
		"Cost":         cost,
		"MissingKey":   missingKey,
		"KeyError":     keyError,
		"Unavailable":  unavailable,
	} {
		t.Run(a.Name+"/"+name, func(t *testing.T) { run(t, a) })
	}
}

func allowAndDeny(t *testing.T, a Adapter) {
	b := newBench(t)
	url := a.Serve(t, b.limiter(core.TokenBucket(core.PerMinute(3))), keyfunc.IP())
	for i, remaining := range []string{"2", "1", "0"} {
		ans := get(t, url)
		ans.wantStatus(t, http.StatusOK)
		reset := []string{"1800000033", "1800000053", "1800000073"}[i] // 12.345678 + 20, 40, 60, rounded up
		ans.wantHeaders(t, "3", remaining, reset, "")
	}
	ans := get(t, url)
	ans.wantStatus(t, http.StatusTooManyRequests)
	ans.wantHeaders(t, "3", "0", "1800000073", "20")
	if got := ans.header.Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("Content-Type %q", got)
	}
	const problem = `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",` +
		`"title":"Request cannot be satisfied as assigned quota has been exceeded","status":429}`
	if ans.body != problem {
		t.Errorf("body %s, want %s", ans.body, problem)
	}

	b.advance(19*time.Second + 999_999*time.Microsecond)
	get(t, url).wantHeaders(t, "3", "0", "1800000073", "1")
	b.advance(time.Microsecond)
	ans = get(t, url)
	ans.wantStatus(t, http.StatusOK)
	ans.wantHeaders(t, "3", "0", "1800000093", "")
}

func never(t *testing.T, a Adapter) {
	b := newBench(t)
	url := a.Serve(t, b.limiter(core.TokenBucket(core.PerMinute(3))), keyfunc.IP(),
		guard.Cost(func(keyfunc.Request) int64 { return 4 }))
	ans := get(t, url)
	ans.wantStatus(t, http.StatusTooManyRequests)
	ans.wantHeaders(t, "3", "3", "1800000013", "")
}

func skip(t *testing.T, a Adapter) {
	b := newBench(t)
	url := a.Serve(t, b.limiter(core.FixedWindow(core.PerMinute(1))), keyfunc.IP(),
		guard.Skip(func(r keyfunc.Request) bool { return r.Path() == "/healthz" }))
	for range 3 {
		ans := get(t, url+"/healthz")
		ans.wantStatus(t, http.StatusOK)
		ans.wantHeaders(t, "", "", "", "")
	}
	get(t, url+"/other").wantStatus(t, http.StatusOK)
	get(t, url+"/other").wantStatus(t, http.StatusTooManyRequests)
	get(t, url+"/healthz").wantStatus(t, http.StatusOK)
}

func cost(t *testing.T, a Adapter) {
	b := newBench(t)
	url := a.Serve(t, b.limiter(core.FixedWindow(core.PerMinute(10))), keyfunc.IP(),
		guard.Cost(func(r keyfunc.Request) int64 {
			switch r.Method() {
			case http.MethodPost:
				return 5
			case http.MethodPut:
				return -5
			case http.MethodOptions:
				return 0
			}
			return 1
		}))
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
	} {
		ans := send(t, step.method, url)
		ans.wantStatus(t, step.status)
		if got := ans.header.Get("X-RateLimit-Remaining"); got != step.remaining {
			t.Errorf("%s: remaining %s, want %s", step.method, got, step.remaining)
		}
	}
}

// missingKey leaves the key out: the request is limited by its peer's address, in
// a bucket that the IP key does not share.
func missingKey(t *testing.T, a Adapter) {
	b := newBench(t)
	lim := b.limiter(core.FixedWindow(core.PerMinute(2)))
	url := a.Serve(t, lim, keyfunc.User(UserKey))
	for _, step := range []struct {
		user   string
		status int
	}{
		{"alice", 200}, {"alice", 200}, {"alice", 429}, {"bob", 200}, {"", 200}, {"", 200}, {"", 429}, {"bob", 200}, {"bob", 429},
	} {
		var lines []string
		if step.user != "" {
			lines = append(lines, UserHeader+": "+step.user)
		}
		get(t, url, lines...).wantStatus(t, step.status)
	}
	byIP := a.Serve(t, lim, keyfunc.IP())
	get(t, byIP).wantStatus(t, http.StatusOK)
}

func keyError(t *testing.T, a Adapter) {
	b := newBench(t)
	url := a.Serve(t, b.limiter(core.FixedWindow(core.PerMinute(2))),
		func(keyfunc.Request) (string, error) { return "", errors.New("broken: secret detail") })
	ans := get(t, url)
	ans.wantStatus(t, http.StatusInternalServerError)
	ans.wantHeaders(t, "", "", "", "")
	const problem = `{"type":"about:blank","title":"Internal Server Error","status":500}`
	if ans.body != problem {
		t.Errorf("body %s, want %s", ans.body, problem)
	}
}

// unavailable stops Redis: nobody passes unlimited, nobody is told of a limit.
func unavailable(t *testing.T, a Adapter) {
	b := newBench(t)
	url := a.Serve(t, b.limiter(core.FixedWindow(core.PerMinute(2))), keyfunc.IP())
	get(t, url).wantStatus(t, http.StatusOK)
	b.redis.SetError("LOADING Redis is loading the dataset in memory")
	ans := get(t, url)
	ans.wantStatus(t, http.StatusServiceUnavailable)
	ans.wantHeaders(t, "", "", "", "")
	b.redis.SetError("")
	get(t, url).wantStatus(t, http.StatusOK)
	get(t, url).wantStatus(t, http.StatusTooManyRequests)
}
