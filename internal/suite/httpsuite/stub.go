package httpsuite

import (
	"net/http"
	"slices"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/keyfunc"
	"github.com/redislimit/redislimit/limittest"
)

// stubCases are about the limiters of package limittest, which users' own tests put
// under the middleware.
func stubCases() []testCase {
	return []testCase{
		{"StubAllows", stubAllows, nil},
		{"StubDenies", stubDenies, nil},
		{"StubUnavailable", stubUnavailable, nil},
		{"StubCountIf", stubCountIf, nil},
		{"StubCostAfter", stubCostAfter, nil},
		{"StubInFlight", stubInFlight, nil},
	}
}

func byIP(lim *core.Limiter, options ...guard.Option) Limit {
	return Limit{Limiter: lim, Key: keyfunc.IP(), Options: options}
}

// untilCalled waits for the calls of lim: a response may be there before it is settled.
func (b *testbed) untilCalled(lim *core.Limiter, want ...limittest.Call) {
	b.Helper()
	b.until("called", func() bool { return len(limittest.Calls(lim)) >= len(want) })
	if got := limittest.Calls(lim); !slices.Equal(got, want) {
		b.Errorf("calls %v, want %v", got, want)
	}
}

func stubAllows(b *testbed) {
	lim := limittest.Allow(core.FixedWindow(core.PerMinute(2)))
	s := b.behind(byIP(lim), Route{Path: "/a"})
	for range 4 {
		ans := s.get("/a")
		ans.wantServed()
		ans.wantHeaders("2", "1", "946684860", "")
	}
	call := limittest.Call{Method: "AllowN", Key: ipKey, Cost: 1}
	b.untilCalled(lim, call, call, call, call)
}

func stubDenies(b *testbed) {
	lim := limittest.Deny(90*time.Second, core.FixedWindow(core.PerMinute(2)))
	s := b.behind(byIP(lim), Route{Path: "/a"})
	for range 2 {
		ans := s.get("/a")
		ans.wantDenied()
		ans.wantHeaders("2", "0", "946684890", "90")
	}
}

func stubUnavailable(b *testbed) {
	ans := b.behind(byIP(limittest.Unavailable()), Route{Path: "/a"}).get("/a")
	ans.wantStatus(http.StatusServiceUnavailable)
	ans.wantHeaders("", "", "", "1")
	ans.wantHidden("limittest")
}

// stubCountIf is a login that fails and one that does not.
func stubCountIf(b *testbed) {
	lim := limittest.Allow()
	failed := guard.CountIf(func(status int) bool { return status == http.StatusUnauthorized })
	s := b.behind(byIP(lim, failed), Route{Path: "/fails", Handler: Handler{Status: http.StatusUnauthorized}}, Route{Path: "/works"})
	reserve, settle := limittest.Call{Method: "Reserve", Key: ipKey, Cost: 1}, limittest.Call{Method: "Settle", Key: ipKey}
	s.get("/works").wantServed()
	b.untilCalled(lim, reserve, settle)
	s.get("/fails").wantStatus(http.StatusUnauthorized)
	charge := settle
	charge.Cost = 1
	b.untilCalled(lim, reserve, settle, reserve, charge)
}

func stubCostAfter(b *testbed) {
	lim := limittest.Allow()
	s := b.behind(after(byIP(lim), 500), Route{Path: "/a", Handler: Handler{Costs: []int64{7312}}})
	s.get("/a").wantServed()
	b.untilCalled(lim, limittest.Call{Method: "Reserve", Key: ipKey, Cost: 500}, limittest.Call{Method: "Settle", Key: ipKey, Cost: 7312})
}

func stubInFlight(b *testbed) {
	lim := limittest.Allow(core.InFlight(2))
	ans := b.behind(byIP(lim), Route{Path: "/a"}).get("/a")
	ans.wantServed()
	ans.wantHeaders("2", "1", "", "")
	b.untilCalled(lim, limittest.Call{Method: "AllowN", Key: ipKey, Cost: 1}, limittest.Call{Method: "Release", Key: ipKey, Cost: 1})
}
