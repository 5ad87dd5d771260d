package httpsuite

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/keyfunc"
)

// unlimitedCases test customers who have no limit, and customers with a limit of 0.
func unlimitedCases() []testCase {
	return []testCase{{"Unlimited", unlimited, nil}}
}

func unlimited(b *testbed) {
	b.each("Alone", unlimitedAlone)
	b.each("Stacked", unlimitedStacked)
	b.each("And", unlimitedAnd)
	b.each("Banned", unlimitedBanned)
	b.each("Zero", zeroLimit)
	b.each("ZeroSlots", zeroSlots)
	b.each("InHandler", unlimitedInHandler)
}

// planned returns a limit by address, with other limits than the limiter's own.
func (b *testbed) planned(lim *core.Limiter, limits []core.Limit, options ...guard.Option) Limit {
	plan := guard.LimiterFor(func(keyfunc.Request) (*core.Limiter, error) { return lim.With(limits...) })
	options = append(options, plan, guard.Headers(guard.XRateLimit|guard.IETF), guard.ResetInSeconds(), guard.RetryAfterMs())
	return Limit{Limiter: lim, Key: keyfunc.IP(), Options: options}
}

// unlimitedAlone serves all requests, whatever the options are, and no header is about a limit. Redis may be away.
func unlimitedAlone(b *testbed) {
	lim := b.limiter(core.FixedWindow(core.PerMinute(1)))
	b.redis.SetError("LOADING")
	for _, options := range [][]guard.Option{
		nil, {guard.ExposeHeaders()}, {estimate(1e12)}, {estimate(7), guard.CostAfter()}, {guard.CountIf(func(int) bool { return true })},
		{guard.WaitUpTo(time.Second)}, {guard.DryRun()}, {guard.HeadersOnDenial()},
	} {
		s := b.behind(b.planned(lim, []core.Limit{core.Unlimited(), core.Unlimited()}, options...))
		for range 3 {
			ans := s.get("/a")
			ans.wantServed()
			ans.wantNoHeaders()
		}
	}
}

// unlimitedStacked checks that the headers describe the limits that exist: another limit of the limiter, and a limit of an
// outer middleware.
func unlimitedStacked(b *testbed) {
	lim := b.limiter(core.FixedWindow(core.PerMinute(1)))
	beside := b.behind(b.planned(lim, []core.Limit{core.Unlimited(), core.FixedWindow(core.PerMinute(2))})).get("/a")
	beside.wantServed()
	beside.wantHeaders("2", "1", "60", "")
	beside.wantHeader("RateLimit-Policy", `"api";q=2;w=60`)

	outer, free := b.namedFixed("outer", 1), b.planned(lim, []core.Limit{core.Unlimited()})
	for _, mounts := range [][]Mount{{outer, free}, {free, outer}} {
		ans := b.serve(App{Use: mounts, Routes: []Route{{Path: "/a"}}}).get("/a")
		ans.wantServed()
		ans.wantHeaders("1", "0", "1800000073", "")
		if err := outer.Limiter.Reset(context.Background(), ipKey); err != nil {
			b.Error(err)
		}
	}
}

// unlimitedAnd makes a user without a limit share the limit of the organization.
func unlimitedAnd(b *testbed) {
	org := b.named("org", core.FixedWindow(core.PerMinute(1)))
	s := b.behind(b.planned(b.limiter(core.FixedWindow(core.PerMinute(1))), []core.Limit{core.Unlimited()}, guard.AlsoLimit(org, keyfunc.Global())))
	for _, status := range []int{http.StatusOK, http.StatusTooManyRequests} {
		ans := s.get("/a")
		ans.wantStatus(status)
		ans.wantHeader("X-RateLimit-Limit", "1")
		ans.wantHeader("RateLimit-Policy", `"org";q=1;w=60`)
	}
}

// unlimitedBanned blocks a client without a limit: the response says when to come back, and names no limit.
func unlimitedBanned(b *testbed) {
	lim := b.limiter(core.FixedWindow(core.PerMinute(1)), core.Ban())
	s := b.behind(b.planned(lim, []core.Limit{core.Unlimited()}))
	s.get("/a").wantNoHeaders()
	if err := lim.Block(context.Background(), ipKey, time.Hour); err != nil {
		b.Fatal(err)
	}
	ans := s.get("/a")
	ans.wantDenied()
	ans.wantHeaders("", "", "", "3600")
	ans.wantHeader("Retry-After-Ms", "3600000")
	ans.wantHeader("RateLimit-Policy", "")
	ans.wantHeader("RateLimit", "")
	if body := `abnormal request pattern","status":429,"retry-after":3600}` + "\n"; !strings.HasSuffix(ans.body, body) {
		b.Errorf("got the body %q, want it to end with %q", ans.body, body)
	}
}

// zeroLimit denies every request that has a cost, with the numbers of the limit and without a Retry-After, also while Redis
// is unavailable. A limit of 0 is intended, so nothing is logged. No client is banned, and the other limit is not charged.
func zeroLimit(b *testbed) {
	other := core.FixedWindow(core.PerMinute(1))
	for _, bans := range []core.Option{core.Options(), core.Ban(time.Hour)} { // the second limiter calls Redis
		lim := b.limiter(other, bans)
		limits := []core.Limit{other, core.TokenBucket(core.PerDay(0), core.Burst(5))}
		isDenied := func() {
			ans := b.behind(b.planned(lim, limits)).get("/a")
			ans.wantDenied()
			ans.wantHeaders("0", "0", "0", "")
			ans.wantHeader("Retry-After-Ms", "")
			ans.wantHeader("RateLimit-Policy", `"api";q=0;w=86400`)
			ans.wantHeader("RateLimit", `"api";r=0`)
			if body := quotaExceeded(`,"violated-policies":["api"],"limit":0`); !strings.HasSuffix(ans.body, body) {
				b.Errorf("got the body %q, want it to end with %q", ans.body, body)
			}
		}
		isDenied()
		isDenied()
		b.behind(b.planned(lim, limits, guard.WaitUpTo(time.Minute))).get("/a").wantDenied()
		b.behind(b.planned(lim, limits, guard.CostAfter())).get("/a").wantDenied()
		b.behind(b.planned(lim, limits, guard.DryRun())).get("/a").wantServed()
		free := b.behind(b.planned(lim, limits, estimate(0))).get("/a")
		free.wantServed()
		free.wantHeaders("0", "0", "0", "")
		free.wantHeader("RateLimit", `"api";r=0;t=0`)
		b.wantLeft(lim, ipKey, 1)
		b.redis.SetError("LOADING")
		isDenied()
		b.redis.SetError("")
	}
	if n := b.logs.lines("WARN") + b.logs.lines("ERROR"); n > 0 {
		b.Errorf("%d warnings and errors were logged, want 0: %s", n, b.logs)
	}
}

// zeroSlots uses a limit of no slots: every request is denied.
func zeroSlots(b *testbed) {
	ans := b.behind(b.planned(b.limiter(core.InFlight(2)), []core.Limit{core.InFlight(0)})).get("/a")
	ans.wantDenied()
	ans.wantHeaders("0", "0", "", "")
	ans.wantHeader("RateLimit-Policy", `"api";q=0;qu="concurrent-requests"`)
	ans = b.behind(b.planned(b.limiter(core.InFlight(2)), []core.Limit{core.Unlimited()})).get("/a")
	ans.wantServed()
	ans.wantNoHeaders()
}

// unlimitedInHandler makes a handler itself call a limiter without a limit, and one with a limit of 0.
func unlimitedInHandler(b *testbed) {
	lim := b.limiter(core.FixedWindow(core.PerMinute(1)))
	for status, limit := range map[int]core.Limit{http.StatusOK: core.Unlimited(), http.StatusTooManyRequests: core.FixedWindow(core.PerDay(0))} {
		l, err := lim.With(limit)
		if err != nil {
			b.Fatal(err)
		}
		ans := b.answering(Answers{}, charging(l, 1)).get("/a")
		ans.wantStatus(status)
		ans.wantHeader("Retry-After", "")
		ans.wantHeader("X-RateLimit-Limit", map[int]string{http.StatusTooManyRequests: "0"}[status])
	}
}
