package httpsuite

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/keyfunc"
)

// headerCases test the headers of a response.
func headerCases() []testCase {
	return []testCase{
		{"HeadersAlone", headersAlone, nil},
		{"NoHeaders", noHeaders, nil},
		{"HeadersOnDenial", headersOnDenial, nil},
		{"HeaderPrefix", headerPrefix, nil},
		{"ResetInSeconds", resetDelta, nil},
		{"ExposeHeaders", exposeHeaders, nil},
	}
}

// headersAlone compares a limited response with the response of the bare handler: all headers that the app sets stay the
// same, byte for byte, and only the three headers of the limit are added.
func headersAlone(b *testbed) {
	app := AddHeader{"App", "a,  b"}
	s := b.serve(App{Use: []Mount{app}, Routes: []Route{{Path: "/bare"}, {Path: "/a", Use: []Mount{b.fixed(1)}}}})
	bare, limited := s.get("/bare"), s.get("/a")
	bare.wantServed()
	bare.wantNoHeaders()
	limited.wantServed()
	limited.wantHeaders("1", "0", "1800000073", "")
	for _, name := range []string{"Date", "X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"} {
		delete(bare.header, name)
		delete(limited.header, name)
	}
	if !maps.EqualFunc(bare.header, limited.header, slices.Equal[[]string]) {
		b.Errorf("the other headers are %v, want %v as without the limit", limited.header, bare.header)
	}
	denied := s.get("/a")
	denied.wantDenied()
	denied.wantHeaders("1", "0", "1800000073", "60")
	denied.wantHeader("App", "a,  b")
}

func noHeaders(b *testbed) {
	limit := b.fixed(1)
	limit.Options = []guard.Option{guard.NoHeaders()}
	s := b.behind(limit)
	for _, status := range []int{http.StatusOK, http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		if status == http.StatusServiceUnavailable {
			b.redis.SetError("LOADING")
		}
		ans := s.get("/a")
		ans.wantStatus(status)
		ans.wantNoHeaders()
	}
}

// headersOnDenial shows a limit in both sets of headers to denied clients, and to no other clients.
func headersOnDenial(b *testbed) {
	limit := b.fixed(2)
	limit.Options = []guard.Option{guard.HeadersOnDenial(), guard.Headers(guard.XRateLimit | guard.IETF), guard.ExposeHeaders()}
	s := b.behind(limit)
	for range 2 {
		ans := s.get("/a")
		ans.wantServed()
		ans.wantNoHeaders()
	}
	ans := s.get("/a")
	ans.wantDenied()
	ans.wantHeaders("2", "0", "1800000073", "60")
	ans.wantHeader("RateLimit", `"api";r=0;t=60`)
	ans.wantExposed("ratelimit ratelimit-policy x-ratelimit-limit x-ratelimit-remaining x-ratelimit-reset retry-after")

	b.redis.SetError("LOADING")
	s.get("/a").wantHeaders("", "", "", "1") // a 503 has a Retry-After, too
}

// headerPrefix renames the three headers of one set, whatever the other options about headers are. It renames no other
// header, and no header has the usual name.
func headerPrefix(b *testbed) {
	const retry, draft = "retry-after", "ratelimit ratelimit-policy "
	for name, c := range map[string]struct {
		prefix, exposed string
		options         []guard.Option
		admitted, unix  bool   // admitted: an admitted response has the three headers; unix: the reset is in Unix time
		ietf            string // the header RateLimit of a denied response
	}{
		"Default": {"X-Rate-Limit-", "", nil, true, true, ""},
		"OldDraft": {"RateLimit-", "ratelimit-limit ratelimit-remaining ratelimit-reset " + retry, []guard.Option{
			guard.ResetInSeconds(), guard.ExposeHeaders(),
		}, true, false, ""},
		"Both": {"ratelimit-", draft + "ratelimit-limit ratelimit-remaining ratelimit-reset " + retry, []guard.Option{
			guard.Headers(guard.XRateLimit | guard.IETF), guard.ExposeHeaders(),
		}, true, true, `"api";r=0;t=60`},
		"OnDenial": {"X-Shop2-", draft + "x-shop2-limit x-shop2-remaining x-shop2-reset " + retry, []guard.Option{
			guard.HeadersOnDenial(), guard.Headers(guard.IETF | guard.XRateLimit), guard.ExposeHeaders(),
		}, false, true, `"api";r=0;t=60`},
	} {
		b.each(name, func(b *testbed) {
			limit := b.fixed(1)
			limit.Options = append([]guard.Option{guard.HeaderPrefix(c.prefix)}, c.options...)
			s := b.behind(limit)
			reset := map[bool]string{true: "1800000073", false: "60"}[c.unix]
			admitted := s.get("/a")
			admitted.wantServed()
			if c.admitted {
				admitted.wantPrefixed(c.prefix, "1", "0", reset)
			} else {
				admitted.wantPrefixed(c.prefix, "", "", "")
			}
			admitted.wantHeaders("", "", "", "")
			denied := s.get("/a")
			denied.wantDenied()
			denied.wantPrefixed(c.prefix, "1", "0", reset)
			denied.wantHeaders("", "", "", "60")
			denied.wantHeader("RateLimit", c.ietf)
			if c.exposed != "" {
				denied.wantExposed(c.exposed)
			}
		})
	}
}

// wantPrefixed checks the three headers whose names begin with a prefix.
func (a answer) wantPrefixed(prefix, limit, remaining, reset string) {
	a.Helper()
	a.wantHeader(prefix+"Limit", limit)
	a.wantHeader(prefix+"Remaining", remaining)
	a.wantHeader(prefix+"Reset", reset)
}

// resetDelta checks that the reset is the number of seconds, rounded up, by the clock that decided.
func resetDelta(b *testbed) {
	limit := b.fixed(2)
	limit.Options = []guard.Option{guard.ResetInSeconds()}
	s := b.behind(limit)
	for _, step := range []struct {
		later                        time.Duration
		remaining, reset, retryAfter string
	}{
		{0, "1", "60", ""},
		{999_999 * time.Microsecond, "0", "60", ""},
		{time.Microsecond, "0", "59", "59"},
		{58*time.Second + 999_999*time.Microsecond, "0", "1", "1"},
		{time.Microsecond, "1", "60", ""},
	} {
		b.advance(step.later)
		s.get("/a").wantHeaders("2", step.remaining, step.reset, step.retryAfter)
	}
	bucket := Limit{Limiter: b.named("full", core.TokenBucket(core.PerSecond(1))), Key: keyfunc.IP(), Options: limit.Options}
	bucket.Options = append(bucket.Options, estimate(0))
	b.behind(bucket).get("/a").wantHeaders("1", "1", "0", "")
}

// exposeHeaders checks that browsers let scripts see the headers of the limit, in addition to headers that the app itself
// exposes.
func exposeHeaders(b *testbed) {
	const legacy = "x-ratelimit-limit x-ratelimit-remaining x-ratelimit-reset retry-after"
	for _, c := range []struct {
		name    string
		before  []string // lines of the app
		options []guard.Option
		times   int
		want    string
	}{
		{"Overlapping", []string{"App, retry-after,X-RateLimit-Limit"}, nil, 1, "app " + legacy},
		{"TwoLines", []string{"App", "App2, App3"}, nil, 2, "app app2 app3 " + legacy},
		{"Stacked", []string{"App"}, nil, 2, "app " + legacy},
		{"IETF", []string{"App"}, []guard.Option{guard.Headers(guard.IETF)}, 2, "app ratelimit ratelimit-policy retry-after"},
		{"Both", nil, []guard.Option{guard.Headers(guard.IETF | guard.XRateLimit)}, 1, "ratelimit ratelimit-policy " + legacy},
	} {
		b.each(c.name, func(b *testbed) {
			var mounts []Mount
			for _, line := range c.before {
				mounts = append(mounts, AddHeader{"Access-Control-Expose-Headers", line})
			}
			limit := b.fixed(2)
			limit.Options = slices.Concat(c.options, []guard.Option{guard.ExposeHeaders()})
			mounts = append(mounts, slices.Repeat([]Mount{limit}, c.times)...)
			s := b.serve(App{Use: mounts, Routes: []Route{{Path: "/a"}}})
			for i := range 3 {
				ans := s.get("/a")
				ans.wantStatus(map[bool]int{true: http.StatusOK, false: http.StatusTooManyRequests}[(i+1)*c.times <= 2])
				ans.wantExposed(c.want)
			}
			b.redis.SetError("LOADING")
			ans := s.get("/a")
			ans.wantHeader("Retry-After", "1")
			ans.wantExposed(c.want)
		})
	}
}

// wantExposed checks the names of exposed headers: each once, in any order.
func (a answer) wantExposed(names string) {
	a.Helper()
	var got []string
	for name := range strings.SplitSeq(strings.Join(a.header.Values("Access-Control-Expose-Headers"), ","), ",") {
		got = append(got, strings.ToLower(strings.TrimSpace(name)))
	}
	want := strings.Fields(names)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		a.Errorf("%s, status %d: the exposed headers are %q, want %q", a.what, a.status, got, want)
	}
}
