package httpsuite

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/keyfunc"
)

// stackCases test several middlewares on one request.
func stackCases() []testCase {
	return []testCase{
		{"Stacked", stacked, nil},
		{"StackedDenies", stackedDenies, nil},
		{"StackedHidden", stackedHidden, nil},
		{"StackedSets", stackedSets, nil},
		{"StackedPrefixes", stackedPrefixes, nil},
		{"Groups", groups, nil},
		{"StackedGivesBack", stackedGivesBack, nil},
		{"StackedInOutage", stackedInOutage, nil},
		{"StackedTwice", stackedTwice, nil},
		{"StackedSlots", stackedSlots, nil},
	}
}

// stacked limits addresses and users. Whichever limit is outside, clients and handlers see the tighter one, in both sets of
// headers.
func stacked(b *testbed) {
	for _, userOutside := range []bool{false, true} {
		byIP, byUser := b.namedFixed("ip", 7), b.namedFixed("user", 2)
		byUser.Key = keyfunc.User(UserKey)
		byIP.Options = []guard.Option{guard.Headers(guard.XRateLimit | guard.IETF)}
		byUser.Options = byIP.Options
		mounts := []Mount{Auth{}, byIP, byUser}
		if userOutside {
			mounts = []Mount{Auth{}, byUser, byIP}
		}
		s := b.serve(App{Use: mounts, Routes: []Route{{Path: "/a", Handler: Handler{Do: ShowResult}}}})
		for _, step := range []struct {
			user             string
			status           int
			limit, remaining string
		}{
			{"alice", 200, "2", "1"},
			{"alice", 200, "2", "0"},
			{"bob", 200, "2", "1"},
			{"bob", 200, "2", "0"},
			{"carol", 200, "7", "2"}, // a smaller share than 1 of 2
			{"carol", 200, "2", "0"},
			{"dave", 200, "7", "0"}, // dave has a request left, but the address has none
			{"erin", 429, "7", "0"},
		} {
			ans := s.get("/a", user(step.user))
			body := "fixed-1m allowed=true limit=" + step.limit + " remaining=" + step.remaining + " delay=0s"
			if ans.status != step.status || (ans.body == body) != (step.status == http.StatusOK) {
				b.Errorf("%s: got status %d and body %q, want %d and the result of the tighter limit", step.user, ans.status, ans.body, step.status)
			}
			ans.wantHeaders(step.limit, step.remaining, "1800000073", map[int]string{429: "60"}[step.status])
			name := map[string]string{"2": "user", "7": "ip"}[step.limit]
			ans.wantHeader("RateLimit-Policy", fmt.Sprintf(`%q;q=%s;w=60`, name, step.limit))
			ans.wantHeader("RateLimit", fmt.Sprintf(`%q;r=%s;t=60`, name, step.remaining))
		}
		// The limits are charged one after the other: the outer limit was charged, and the inner one not, or not yet.
		b.wantLeft(byUser.Limiter, "user:erin", map[bool]int64{true: 1, false: 2}[userOutside])
		b.redis.FlushAll()
	}
}

// stackedDenies makes the inner limit deny while the outer one has fewer units left: a client needs the headers of the
// limit that denied.
func stackedDenies(b *testbed) {
	outer := Limit{Limiter: b.named("outer", core.FixedWindow(core.PerHour(1))), Key: keyfunc.IP()}
	inner := b.fixed(3)
	inner.Options = []guard.Option{estimate(4)}
	ans := b.serve(App{Use: []Mount{outer, inner}, Routes: []Route{{Path: "/a"}}}).get("/a")
	ans.wantDenied()
	ans.wantHeaders("3", "3", "1800000013", "") // no Retry-After, because the cost can never be admitted
	b.wantLeft(outer.Limiter, ipKey, 0)
}

// stackedHidden uses a limit that is hidden from clients and tighter than one that is shown: it must not hide the shown
// limit. How much of the hidden limit's own denials is shown depends on the option.
func stackedHidden(b *testbed) {
	for name, c := range map[string]struct {
		hide                          guard.Option
		status                        int // the status of the third request
		limit, remaining, reset, wait string
	}{
		"NoHeaders":       {guard.NoHeaders(), 429, "", "", "", ""},
		"HeadersOnDenial": {guard.HeadersOnDenial(), 429, "2", "0", "1800000073", "60"},
		"DryRun":          {guard.DryRun(), 200, "9", "6", "1800000073", ""},
	} {
		b.each(name, func(b *testbed) {
			hidden, shown := b.namedFixed("hidden", 2), b.namedFixed("shown", 9)
			hidden.Options = []guard.Option{c.hide}
			for _, mounts := range [][]Mount{{hidden, shown}, {shown, hidden}} {
				s := b.serve(App{Use: mounts, Routes: []Route{{Path: "/a"}}})
				for _, remaining := range []string{"8", "7"} { // the hidden limit has 1 and 0 of 2 units left, which are smaller shares
					ans := s.get("/a")
					ans.wantServed()
					ans.wantHeaders("9", remaining, "1800000073", "")
				}
				ans := s.get("/a")
				ans.wantStatus(c.status)
				if name == "NoHeaders" && mounts[0].(Limit).Limiter == shown.Limiter { // the shown limit has admitted the request
					ans.wantHeaders("9", "6", "1800000073", "")
				} else {
					ans.wantHeaders(c.limit, c.remaining, c.reset, c.wait)
				}
				b.redis.FlushAll()
			}
		})
	}
}

// stackedGivesBack checks that outer limits do not count requests that an inner one denies, and do not count requests twice
// that fail behind them.
func stackedGivesBack(b *testbed) {
	var saw statusLog
	admitted := saw.counts(func(status int) bool { return status != http.StatusTooManyRequests })
	shared := Limit{Limiter: b.named("shared", core.TokenBucket(core.PerMinute(9))), Key: keyfunc.Global(), Options: []guard.Option{admitted}}
	middle, own := b.namedFixed("middle", 4), b.namedFixed("own", 3)
	middle.Options = shared.Options
	s := b.serve(App{Use: []Mount{shared, middle, own}, Routes: []Route{
		{Path: "/a"}, {Path: "/fails", Handler: Handler{Do: Throw}},
	}, Renders: true})
	s.get("/a").wantServed()
	b.untilLeft(shared.Limiter, keyfunc.ForGlobal(), 8)
	s.get("/fails").want(http.StatusTeapot, "teapot") // this failure counts
	b.untilLeft(shared.Limiter, keyfunc.ForGlobal(), 7)
	s.get("/a").wantServed()
	for range 2 {
		s.get("/a").wantDenied()
		b.untilLeft(shared.Limiter, keyfunc.ForGlobal(), 6)
	}
	s.close()
	b.wantLeft(shared.Limiter, keyfunc.ForGlobal(), 6)
	b.wantLeft(middle.Limiter, ipKey, 1)
	b.wantLeft(own.Limiter, ipKey, 0)
	saw.want(b, 200, 200, 418, 418, 200, 200, 429, 429, 429, 429)
}

// stackedInOutage makes an inner limit unable to decide. The outer limits, which have decided, do not charge requests that
// no handler served, but they do charge a request whose handler answered 503.
func stackedInOutage(b *testbed) {
	for name, outer := range map[string]guard.Option{
		"CountIf":   guard.CountIf(func(status int) bool { return status != http.StatusTooManyRequests }),
		"CostAfter": guard.CostAfter(),
	} {
		b.each(name, func(b *testbed) {
			shared, err := core.NewMemory("shared", core.FixedWindow(core.PerHour(9)))
			if err != nil {
				b.Fatal(err)
			}
			s := b.serve(App{Use: []Mount{Limit{Limiter: shared, Key: keyfunc.IP(), Options: []guard.Option{outer}}, b.fixed(9)}, Routes: []Route{
				{Path: "/a"}, {Path: "/busy", Handler: Handler{Do: Fail, Status: http.StatusServiceUnavailable}},
			}})
			s.get("/a").wantServed()
			s.get("/busy").wantStatus(http.StatusServiceUnavailable)
			b.untilLeft(shared, ipKey, 7)
			b.redis.SetError("LOADING")
			for range 3 {
				s.get("/a").wantStatus(http.StatusServiceUnavailable)
			}
			s.close()
			b.untilLeft(shared, ipKey, 7)
		})
	}
}

// stackedTwice mounts middlewares that charge one request twice to the same count, which is logged once for each limiter,
// and middlewares that only seem to.
func stackedTwice(b *testbed) {
	for name := range b.mountedTwice() {
		b.each(name, func(b *testbed) {
			c := b.mountedTwice()[name]
			group := func(prefix string) Group {
				return Group{Prefix: prefix, Use: c.mounts[1:], Routes: []Route{{Path: "/a"}}}
			}
			s := b.serve(App{Use: []Mount{Auth{}, c.mounts[0]}, Groups: []Group{group("/g"), group("/h")}, Routes: []Route{{Path: "/a"}}})
			for _, path := range []string{"/a", "/g/a", "/h/a", "/g/a"} {
				s.get(path, user("alice")).wantServed()
			}
			s.close()
			if n := b.logs.lines("WARN"); n != c.warnings || b.logs.Count("a request is counted twice") != n {
				b.Errorf("%d warnings were logged, want %d: %s", n, c.warnings, b.logs.String())
			}
		})
	}
}

// stackedSlots mounts two middlewares that take the same slot for one request: the request takes one slot, which is freed
// when it ends.
func stackedSlots(b *testbed) {
	limit := Limit{Limiter: b.limiter(core.InFlight(1)), Key: keyfunc.IP()}
	s := b.serve(App{Use: []Mount{limit}, Routes: []Route{{Path: "/a", Use: []Mount{limit}}}})
	for range 3 {
		s.get("/a").wantServed()
	}
	s.close()
	if n := b.logs.Count("a request is counted twice"); n != 1 {
		b.Errorf("%d warnings were logged, want 1: %s", n, b.logs.String())
	}
	b.untilLeft(limit.Limiter, ipKey, 1)
}

// A twice has mounts with the limiter "api", by address, and perhaps other mounts, and the number of warnings that they
// cause.
type twice struct {
	warnings int
	mounts   []Mount
}

func (b *testbed) mountedTwice() map[string]twice {
	b.Helper()
	api, other := b.fixed(90), b.namedFixed("other", 90)
	with := func(l Limit, options ...guard.Option) Limit { l.Options = options; return l }
	by := func(key keyfunc.Func) Limit { return Limit{Limiter: api.Limiter, Key: key} }
	contract, err := api.Limiter.With(core.FixedWindow(core.PerMinute(80)))
	if err != nil {
		b.Fatal(err)
	}
	return map[string]twice{
		"the same limiter":       {1, []Mount{api, api}},
		"with another one":       {1, []Mount{api, other, api}},
		"behind another one":     {1, []Mount{other, api, api}},
		"two of one name":        {1, []Mount{api, b.fixed(90)}},
		"what it costs":          {1, []Mount{api, after(api, 2)}},
		"what failed":            {1, []Mount{failedLogins(api.Limiter), failedLogins(api.Limiter)}},
		"chosen":                 {1, []Mount{api, with(other, guard.LimiterFor(func(keyfunc.Request) (*core.Limiter, error) { return api.Limiter, nil }))}},
		"by two keys":            {0, []Mount{api, by(keyfunc.Global()), by(keyfunc.User(UserKey))}},
		"limits of its own":      {0, []Mount{api, Limit{Limiter: contract, Key: api.Key}}},
		"another limiter":        {0, []Mount{api, other}},
		"two that decide as one": {0, []Mount{with(api, guard.AlsoLimit(other.Limiter, other.Key))}},
		"a look":                 {0, []Mount{api, with(api, estimate(0))}},
		"not this request":       {0, []Mount{api, with(api, guard.Skip(func(keyfunc.Request) bool { return true }))}},
	}
}

// groups limits a group of routes and, within the group, one of the routes once more.
func groups(b *testbed) {
	hour := func(name string, n int64) Limit {
		return Limit{Limiter: b.named(name, core.FixedWindow(core.PerHour(n))), Key: keyfunc.IP()}
	}
	g, h, route := hour("g", 3), hour("h", 1), hour("route", 1)
	s := b.serve(App{
		Groups: []Group{
			{Prefix: "/g", Use: []Mount{g}, Routes: []Route{{Path: "/a"}, {Path: "/b", Use: []Mount{route}}}},
			{Prefix: "/h", Use: []Mount{h}, Routes: []Route{{Path: "/a"}}},
		},
		Routes: []Route{{Path: "/a"}},
	})
	for _, step := range []struct {
		path             string
		status           int
		limit, remaining string
	}{
		{"/a", 200, "", ""},
		{"/g/a", 200, "3", "2"},
		{"/g/b", 200, "1", "0"}, // the tighter limit
		{"/g/b", 429, "1", "0"},
		{"/g/a", 429, "3", "0"},
		{"/h/a", 200, "1", "0"},
		{"/h/a", 429, "1", "0"},
		{"/a", 200, "", ""},
	} {
		ans := s.get(step.path)
		ans.wantStatus(step.status)
		ans.wantHeader("X-RateLimit-Limit", step.limit)
		ans.wantHeader("X-RateLimit-Remaining", step.remaining)
	}
}

// stackedSets mounts two limits with different sets of headers: each set is shown, however tight the other limit is.
func stackedSets(b *testbed) {
	tight := b.namedFixed("tight", 2)
	loose := b.fixed(5)
	loose.Options = []guard.Option{guard.Headers(guard.IETF)}
	for _, mounts := range [][]Mount{{tight, loose}, {loose, tight}} {
		ans := b.serve(App{Use: mounts, Routes: []Route{{Path: "/a"}}}).get("/a")
		ans.wantHeaders("2", "1", "1800000073", "")
		ans.wantHeader("RateLimit", `"api";r=4;t=60`)
		b.redis.FlushAll()
	}
}

// stackedPrefixes mounts limits whose headers have different names. Each prefix shows one limit: if two limits have the
// same prefix, in upper or lower case, the tighter one. Slots between them remove only the reset of their own prefix.
func stackedPrefixes(b *testbed) {
	prefixed := func(name, prefix string, limit core.Limit) Limit {
		return Limit{Limiter: b.named(name, limit), Key: keyfunc.IP(), Options: []guard.Option{guard.HeaderPrefix(prefix)}}
	}
	tight, loose := b.namedFixed("tight", 2), prefixed("loose", "X-Team-", core.FixedWindow(core.PerMinute(5)))
	looser := prefixed("looser", "x-team-", core.FixedWindow(core.PerMinute(7)))
	slots := prefixed("slots", "X-Slots-", core.InFlight(4))
	for _, mounts := range [][]Mount{{tight, slots, loose, looser}, {looser, loose, tight, slots}, {loose, tight, looser, slots}} {
		ans := b.serve(App{Use: mounts, Routes: []Route{{Path: "/a"}}}).get("/a")
		ans.wantHeaders("2", "1", "1800000073", "")
		ans.wantPrefixed("X-Team-", "5", "4", "1800000073")
		ans.wantPrefixed("X-Slots-", "4", "3", "")
		b.redis.FlushAll()
	}
	if logged := b.logs.String(); strings.Contains(logged, "before this limiter decided") {
		b.Errorf("the log has %s, want no line about a limiter that decided later", logged)
	}
}
