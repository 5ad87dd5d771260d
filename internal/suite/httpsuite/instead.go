package httpsuite

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/keyfunc"
)

// answerCases test what answers a request instead of the handler, and how.
func answerCases() []testCase {
	return []testCase{
		{"Problem", problem, nil},
		{"ProblemMembers", problemMembers, nil},
		{"Ban", ban, nil},
		{"ErrorHandler", errorHandler, nil},
		{"OnDenied", onDenied, nil},
		{"OnError", onError, nil},
	}
}

// refused calls refuse for apps that answer 429, 500 and 503.
func (b *testbed) refused(refuse func(status int, mounts ...Mount)) {
	limit := b.fixed(1)
	refuse(http.StatusTooManyRequests, limit, limit) // a request is charged twice
	refuse(http.StatusInternalServerError, b.broken())
	b.redis.SetError("LOADING secret detail")
	refuse(http.StatusServiceUnavailable, limit)
	b.redis.SetError("")
}

// quotaExceeded returns the body of the response to a denied request, with these members.
func quotaExceeded(members string) string {
	return `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",` +
		`"title":"Request cannot be satisfied as assigned quota has been exceeded","status":429` + members + "}\n"
}

// problem checks the response that a client gets if the app itself does not render it.
func problem(b *testbed) {
	bodies := map[int]string{
		429: quotaExceeded(`,"violated-policies":["api"],"limit":1,"retry-after":60`),
		500: `{"type":"about:blank","title":"Internal Server Error","status":500}` + "\n",
		503: `{"type":"about:blank","title":"Service Unavailable","status":503}` + "\n",
	}
	b.refused(func(status int, mounts ...Mount) {
		ans := b.serve(App{Use: mounts, Routes: []Route{{Path: "/a"}}}).get("/a")
		switch {
		case b.adapter.Problem:
			ans.want(status, bodies[status])
			ans.wantHeader("Content-Type", "application/problem+json")
		default:
			ans.wantStatus(status)
			if !strings.Contains(ans.body, http.StatusText(status)) {
				b.Errorf("status %d: got the body %q, want the text of the status in it", status, ans.body)
			}
		}
	})
}

// problemMembers checks the members of the body for denials by some of several limits, denials forever, and denials by a
// limit that is hidden from clients. If the middleware does not render the body, the app renders the same one.
func problemMembers(b *testbed) {
	for _, c := range []struct {
		name    string
		limits  []core.Option
		cost    int64
		options []guard.Option
		want    string
	}{
		{"One", []core.Option{core.TokenBucket(core.PerMinute(3))}, 2, nil, `,"violated-policies":["api"],"limit":3,"retry-after":20`},
		{"Never", []core.Option{core.TokenBucket(core.PerMinute(3))}, 4, nil, `,"violated-policies":["api"],"limit":3`},
		{
			"Several", []core.Option{core.TokenBucket(core.PerSecond(2)), core.FixedWindow(core.PerMinute(5)), core.FixedWindow(core.PerHour(3))}, 2,
			nil, `,"violated-policies":["api-token-1s","api-fixed-1h"],"limit":3,"retry-after":3600`,
		},
		{"NoHeaders", []core.Option{core.FixedWindow(core.PerMinute(1))}, 1, []guard.Option{guard.NoHeaders()}, ""},
		{"HeadersOnDenial", []core.Option{core.FixedWindow(core.PerMinute(1))}, 1, []guard.Option{guard.HeadersOnDenial()}, `,"violated-policies":["api"],"limit":1,"retry-after":60`},
	} {
		b.each(c.name, func(b *testbed) {
			cost := estimate(c.cost)
			s := b.behind(Limit{Limiter: b.limiter(c.limits...), Key: keyfunc.IP(), Options: append(c.options, cost)})
			s.get("/a")
			ans := s.get("/a")
			ans.wantStatus(http.StatusTooManyRequests)
			if body := quotaExceeded(c.want); !strings.HasSuffix(ans.body, body) || b.adapter.Problem && ans.body != body {
				b.Errorf("got the body %q, want %q", ans.body, body)
			}
			if want := strconv.Itoa(len(ans.body)); ans.header.Get("Content-Length") != want {
				b.Errorf("Content-Length is %q, want %s", ans.header.Get("Content-Length"), want)
			}
		})
	}
}

// ban makes a denial ban a client. The response says that there is a ban, and when it ends. A dry run bans nobody.
func ban(b *testbed) {
	limit := Limit{
		Limiter: b.limiter(core.FixedWindow(core.PerMinute(1)), core.Ban(time.Hour)), Key: keyfunc.IP(),
		Options: []guard.Option{guard.Headers(guard.XRateLimit | guard.IETF)},
	}
	looks := b.behind(dry(limit))
	for range 3 {
		looks.get("/a").wantServed()
	}
	if res, err := limit.Limiter.Peek(context.Background(), ipKey); res.Allowed || res.Banned || err != nil {
		b.Errorf("after a dry run: got %+v, %v; want a denial without a ban", res, err)
	}
	s := b.behind(limit)
	for range 2 {
		ans := s.get("/a")
		ans.wantDenied()
		ans.wantHeaders("1", "0", "1800003613", "3600")
		ans.wantHeader("RateLimit", `"api";r=0;t=3600`)
		body := `{"type":"https://iana.org/assignments/http-problem-types#abnormal-usage-detected",` +
			`"title":"Request not satisfied due to detection of abnormal request pattern","status":429,` +
			`"violated-policies":["api"],"limit":1,"retry-after":3600}` + "\n"
		if !strings.HasSuffix(ans.body, body) && b.adapter.Problem {
			b.Errorf("got the body %q, want %q", ans.body, body)
		}
	}
	looks.get("/a").wantServed() // a dry run serves a banned client, too
}

// errorHandler makes the app render the errors of frameworks that have errors.
func errorHandler(b *testbed) {
	bodies := map[int]string{
		429: "denied: fixed-1m allowed=false limit=1 remaining=0 delay=0s\n" +
			quotaExceeded(`,"violated-policies":["api"],"limit":1,"retry-after":60`),
		500: "rendered: Internal Server Error",
		503: "rendered: Service Unavailable",
	}
	b.refused(func(status int, mounts ...Mount) {
		ans := b.serve(App{Use: mounts, Routes: []Route{{Path: "/a"}}, Renders: true}).get("/a")
		ans.wantStatus(status)
		if rendered := ans.body == bodies[status]; rendered == b.adapter.Problem {
			b.Errorf("status %d: got the body %q; rendered by the app: %t, want %t", status, ans.body, rendered, !b.adapter.Problem)
		}
	})
}

// A handlerCase is a native handler that answers instead of the usual response, with the response that the client must get.
// A status of 0 is the usual one.
type handlerCase struct {
	name    string
	handler Handler
	status  int
	body    string
}

func handlerCases() []handlerCase {
	open := make(chan struct{})
	close(open)
	return []handlerCase{
		{"Writes", Handler{Body: "turned away"}, 0, "turned away"},
		{"Silent", Handler{Do: Silent}, 0, ""},
		{"SetsStatus", Handler{Status: 402, Body: "pay"}, 402, "pay"},
		{"Sets200", Handler{Status: 200, Body: "pretend"}, 200, "pretend"},
		{"Streams", Handler{Do: Stream, Gate: open}, 0, "one\ntwo\n"},
		{"Throws", Handler{Do: Throw}, 418, "teapot"},
	}
}

func onDenied(b *testbed) {
	for _, c := range append(handlerCases(),
		handlerCase{"ShowsResult", Handler{Do: ShowResult}, 0, "fixed-1m allowed=false limit=1 remaining=0 delay=0s"},
	) {
		b.each(c.name, func(b *testbed) {
			limit := b.fixed(1)
			limit.OnDenied = &c.handler
			limit.OnError = &Handler{Body: "the wrong one"}
			limit.Options = []guard.Option{guard.ExposeHeaders()}
			s := b.behind(limit)
			s.get("/a").wantServed()
			ans := s.get("/a")
			ans.wantAnswerBy(c, http.StatusTooManyRequests)
			ans.wantHeaders("1", "0", "1800000073", "60")
		})
	}
}

func onError(b *testbed) {
	for _, c := range handlerCases() {
		b.each(c.name, func(b *testbed) {
			for _, status := range []int{http.StatusInternalServerError, http.StatusServiceUnavailable} {
				limit := b.broken()
				if status == http.StatusServiceUnavailable {
					limit = b.fixed(1)
					b.redis.SetError("LOADING secret detail")
				}
				limit.OnError = &c.handler
				limit.OnDenied = &Handler{Body: "the wrong one"}
				ans := b.behind(limit).get("/a")
				ans.wantAnswerBy(c, status)
				ans.wantHeaders("", "", "", map[int]string{http.StatusServiceUnavailable: "1"}[status])
				ans.wantHidden("secret detail")
			}
		})
	}
}

// wantAnswerBy checks that only c's handler answered.
func (a answer) wantAnswerBy(c handlerCase, usual int) {
	a.Helper()
	if c.status != 0 {
		usual = c.status
	}
	a.want(usual, c.body)
	if got := a.header.Get("Content-Type"); got == guard.ProblemType {
		a.Errorf("Content-Type is %q, want not this one: the handler did not set it", got)
	}
}
