package httpsuite

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/internal/testkit/limits"
	"github.com/redislimit/redislimit/keyfunc"
)

// costAfterCases are about requests whose cost is known when they end.
func costAfterCases() []testCase {
	return []testCase{
		{"CostAfter", costAfter, nil},
		{"CostAfterDebt", costAfterDebt, nil},
		{"CostAfterUnset", costAfterUnset, nil},
		{"CostAfterWrong", costAfterWrong, nil},
		{"CostAfterStacked", costAfterStacked, nil},
		{"CostAfterCountIf", costAfterCountIf, nil},
		{"CostAfterEndings", costAfterEndings, nil},
		{"CostAfterStream", costAfterStream, nil},
		{"CostAfterStreamLeft", costAfterStreamLeft, nil},
		{"CostAfterUpgrade", costAfterUpgrade, nil},
		{"CostAfterTiers", costAfterTiers, nil},
		{"CostAfterDryRun", costAfterDryRun, nil},
		{"CostAfterDelayed", costAfterDelayed, nil},
		{"CostAfterOutage", costAfterOutage, nil},
	}
}

func estimate(n int64) guard.Option { return guard.Cost(func(keyfunc.Request) int64 { return n }) }

// after has limit reserve n units for each request, and charge what the handler sets.
func after(limit Limit, n int64, options ...guard.Option) Limit {
	limit.Options = append([]guard.Option{guard.CostAfter(), estimate(n)}, options...)
	return limit
}

// untilLeft waits until a response that has ended is settled: the client may have all of
// it before that.
func (b *testbed) untilLeft(lim *core.Limiter, key string, want int64) {
	b.Helper()
	var got int64
	for deadline := time.Now().Add(testTimeout); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if got = b.left(lim, key); got == want {
			return
		}
	}
	b.Errorf("%s of %s: %d left, want %d", key, lim.Name(), got, want)
}

// gate returns what handlers wait for, and what opens it. A Cleanup after the app is served
// is to open it, too, so that a failed test ends.
func (b *testbed) gate() (gate <-chan struct{}, open func()) {
	opened := make(chan struct{})
	return opened, sync.OnceFunc(func() { close(opened) })
}

// costAfter is a gateway to a language model, with a limit of 1000 tokens a minute. It
// reserves 500 for an answer of 7,312: the headers of the next request show the debt, and
// requests are denied until it is paid.
func costAfter(b *testbed) {
	lim := b.limiter(core.TokenBucket(core.PerMinute(1000)))
	s := b.behind(after(Limit{Limiter: lim, Key: keyfunc.IP()}, 500),
		Route{Path: "/long", Handler: Handler{Costs: []int64{1200, 7312}}}, // the last one counts
		Route{Path: "/short", Handler: Handler{Costs: []int64{20}}})
	ans := s.get("/long")
	ans.wantServed()
	ans.wantHeaders("1000", "500", "1800000043", "") // before the cost is known
	ans = s.get("/short")
	ans.wantDenied()
	ans.wantHeaders("1000", "0", "1800000452", "409") // 7312 and 7312-500 units of 60 ms

	b.advance(408*time.Second + 719_999*time.Microsecond)
	ans = s.get("/short")
	ans.wantDenied()
	ans.wantHeaders("1000", "499", "1800000452", "1") // short of the 500 that it reserves
	b.advance(time.Microsecond)
	ans = s.get("/short")
	ans.wantServed()
	ans.wantHeaders("1000", "0", "1800000482", "")
	b.wantLeft(lim, ipKey, 480)
}

// costAfterDebt has each algorithm deny until the debt is paid. A window forgets it when
// it ends; a log holds no more than its limit.
func costAfterDebt(b *testbed) {
	for _, v := range limits.All() {
		if v.Kind.Delays {
			continue
		}
		b.each(v.Name, func(b *testbed) {
			lim := b.limiter(v.Limit(core.PerMinute(10)))
			s := b.behind(after(Limit{Limiter: lim, Key: keyfunc.IP()}, 5), Route{Path: "/a", Handler: Handler{Costs: []int64{15}}})
			s.get("/a").wantServed()
			ans := s.get("/a")
			ans.wantDenied()
			ans.wantHeader("X-RateLimit-Remaining", "0")
			res, err := lim.AllowN(b.Context(), ipKey, 5)
			if err != nil || res.Allowed || res.RetryAfter <= time.Microsecond {
				b.Fatalf("the debt is not there: %+v, %v", res, err)
			}
			b.advance(res.RetryAfter - time.Microsecond)
			s.get("/a").wantDenied()
			b.advance(time.Microsecond)
			s.get("/a").wantServed()
			s.get("/a").wantDenied()
		})
	}
}

// costAfterUnset charges what was reserved where no cost is set, and where no middleware
// has CostAfter.
func costAfterUnset(b *testbed) {
	limit := after(b.fixed(9), 4)
	s := b.behind(limit, Route{Path: "/unset"}, Route{Path: "/nothing", Handler: Handler{Costs: []int64{0}}})
	s.get("/nothing").wantServed()
	b.wantLeft(limit.Limiter, ipKey, 9)
	s.get("/unset").wantServed()
	b.wantLeft(limit.Limiter, ipKey, 5)

	b.serve(App{Routes: []Route{{Path: "/a", Handler: Handler{Costs: []int64{3, -1}}}}}).get("/a").wantServed()
	for _, options := range [][]guard.Option{nil, {guard.CountIf(func(int) bool { return true })}} {
		limit := b.namedFixed(fmt.Sprintf("other%d", len(options)), 9)
		limit.Options = options
		b.behind(limit, Route{Path: "/a", Handler: Handler{Costs: []int64{3, -1}}}).get("/a").wantServed()
		b.wantLeft(limit.Limiter, ipKey, 8)
	}
	if n := b.logs.count("level="); n != 0 {
		b.Errorf("%d lines logged: %s", n, b.logs.text.String())
	}
}

// costAfterWrong sets what no request can cost. That is logged once for each middleware.
func costAfterWrong(b *testbed) {
	for _, c := range []struct{ cost, charged int64 }{{-1, 4}, {2_000_000_000, 1_000_000_000}} {
		b.each(fmt.Sprint(c.cost), func(b *testbed) {
			lim := b.limiter(core.TokenBucket(core.PerSecond(1_000_000), core.Burst(1_000_000_000)))
			s := b.behind(after(Limit{Limiter: lim, Key: keyfunc.IP()}, 4), Route{Path: "/a", Handler: Handler{Costs: []int64{3, c.cost}}})
			for range 2 {
				s.get("/a").wantServed()
				b.wantLeft(lim, ipKey, 1_000_000_000-c.charged)
				b.advance(2000 * time.Second)
			}
			want := fmt.Sprintf("cost=%d charged=%d limiter=api", c.cost, c.charged)
			if n := b.logs.count("level="); n != 1 || b.logs.count(want) != 1 {
				b.Errorf("%d lines logged, want 1, with %q: %s", n, want, b.logs.text.String())
			}
		})
	}
}

// costAfterStacked has a limit of tokens among others. Only those that asked for the cost
// charge it.
func costAfterStacked(b *testbed) {
	requests := b.namedFixed("requests", 9)
	tokens := after(b.namedFixed("tokens", 100), 10)
	failures := b.namedFixed("failures", 9)
	failures.Options = []guard.Option{guard.CountIf(func(status int) bool { return status >= 400 })}
	money := after(b.namedFixed("money", 50), 1)
	s := b.serve(App{Use: []Mount{requests, tokens, failures, money}, Routes: []Route{{Path: "/a", Handler: Handler{Costs: []int64{42}}}}})
	s.get("/a").wantServed()
	b.wantLeft(requests.Limiter, ipKey, 8)
	b.wantLeft(tokens.Limiter, ipKey, 58)
	b.wantLeft(failures.Limiter, ipKey, 9)
	b.wantLeft(money.Limiter, ipKey, 8)

	// An inner limit denies: to the outer ones that is how the request ended.
	money = after(b.namedFixed("money", 50), 51)
	b.serve(App{Use: []Mount{requests, tokens, failures, money}, Routes: []Route{{Path: "/a"}}}).get("/a").wantDenied()
	b.wantLeft(requests.Limiter, ipKey, 7)
	b.wantLeft(tokens.Limiter, ipKey, 48)
	b.wantLeft(failures.Limiter, ipKey, 8)
	b.wantLeft(money.Limiter, ipKey, 8)
}

// costAfterCountIf charges the cost of those requests only that count.
func costAfterCountIf(b *testbed) {
	limit := after(b.fixed(100), 10, guard.CountIf(func(status int) bool { return status < 400 }))
	s := b.behind(limit,
		Route{Path: "/good", Handler: Handler{Costs: []int64{42}}},
		Route{Path: "/unset"},
		Route{Path: "/bad", Handler: Handler{Costs: []int64{42}, Do: Fail, Status: http.StatusBadGateway}})
	for _, step := range []struct {
		path string
		left int64
	}{{"/bad", 100}, {"/good", 58}, {"/bad", 58}, {"/unset", 48}} {
		s.get(step.path)
		b.untilLeft(limit.Limiter, ipKey, step.left)
	}
}

// costAfterEndings ends a request in every way: it is settled once.
func costAfterEndings(b *testbed) {
	for _, e := range endings() {
		for _, point := range []MountPoint{Everywhere, InGroup, OnRoute} {
			if e.status == http.StatusNotFound {
				continue // no handler, and so no cost
			}
			b.each(fmt.Sprintf("%s/%s", e.name, point), func(b *testbed) {
				var saw statusLog
				limit := after(b.fixed(9), 1, saw.counts(func(int) bool { return true }))
				e.handler.Costs = []int64{3}
				app := mountedAt(point, limit, Route{Path: "/a", Handler: e.handler})
				app.Recover, app.Renders = true, !e.bare
				s := b.serve(app)
				ans := s.get("/g/a")
				s.close()
				saw.want(b, ans.status)
				b.untilLeft(limit.Limiter, ipKey, 6)
			})
		}
	}
}

// costAfterStream counts the tokens while it sends them. Until the end of the response
// the estimate is held.
func costAfterStream(b *testbed) {
	for _, later := range [][]int64{nil, {2, 7}} {
		b.each(fmt.Sprintf("later=%v", later), func(b *testbed) {
			var calls atomic.Int64
			limit := after(b.fixed(9), 1)
			gate, open := b.gate()
			s := b.behind(limit, Route{Path: "/a", Handler: Handler{Do: Stream, Gate: gate, Costs: []int64{3}, Later: later, Calls: &calls}})
			b.Cleanup(open)
			_, done := s.start("/a")
			b.until("the handler runs", func() bool { return calls.Load() == 1 })
			b.wantLeft(limit.Limiter, ipKey, 8)
			open()
			(<-done).want(http.StatusOK, "one\ntwo\n")
			b.untilLeft(limit.Limiter, ipKey, map[bool]int64{true: 2, false: 6}[later != nil])
			s.close()
			b.wantLeft(limit.Limiter, ipKey, map[bool]int64{true: 2, false: 6}[later != nil])
		})
	}
}

// costAfterStreamLeft has the client leave in the middle of a stream: what was sent until
// then is charged.
func costAfterStreamLeft(b *testbed) {
	var calls atomic.Int64
	limit := after(b.fixed(9), 1)
	gate, open := b.gate()
	s := b.behind(limit, Route{Path: "/a", Handler: Handler{Do: Stream, Gate: gate, Costs: []int64{3}, Calls: &calls}})
	b.Cleanup(open)
	leave, done := s.start("/a")
	b.until("the handler runs", func() bool { return calls.Load() == 1 })
	leave()
	<-done
	b.wantLeft(limit.Limiter, ipKey, 8)
	open()
	b.untilLeft(limit.Limiter, ipKey, 6)
	s.close()
	b.wantLeft(limit.Limiter, ipKey, 6)
}

// costAfterUpgrade counts what is said over a connection that a handler took over.
func costAfterUpgrade(b *testbed) {
	for _, later := range [][]int64{nil, {2, 7}} {
		b.each(fmt.Sprintf("later=%v", later), func(b *testbed) {
			limit := after(b.fixed(9), 1)
			s := b.behind(limit, Route{Path: "/a", Handler: Handler{Do: Upgrade, Costs: []int64{3}, Later: later}})
			s.upgrade("/a", http.StatusSwitchingProtocols)
			b.untilLeft(limit.Limiter, ipKey, map[bool]int64{true: 2, false: 6}[later != nil])
		})
	}
}

// costAfterTiers settles with the limiter that decided.
func costAfterTiers(b *testbed) {
	gold := b.named("gold", core.FixedWindow(core.PerMinute(50)))
	limit := after(b.fixed(9), 2, guard.LimiterFor(func(r keyfunc.Request) *core.Limiter {
		if r.Header("Tier") == "gold" {
			return gold
		}
		return nil
	}))
	s := b.behind(limit, Route{Path: "/a", Handler: Handler{Costs: []int64{7}}})
	s.get("/a", "Tier: gold").wantServed()
	b.wantLeft(gold, ipKey, 43)
	b.wantLeft(limit.Limiter, ipKey, 9)
	s.get("/a").wantServed()
	b.wantLeft(gold, ipKey, 43)
	b.wantLeft(limit.Limiter, ipKey, 2)

	contract := core.FixedWindow(core.PerMinute(20))
	limit = after(b.namedFixed("contract", 9), 2, guard.LimitFor(func(keyfunc.Request) ([]core.Limit, error) {
		return []core.Limit{contract}, nil
	}))
	b.behind(limit, Route{Path: "/a", Handler: Handler{Costs: []int64{12}}}).get("/a").wantServed()
	lim, err := limit.Limiter.With(contract)
	if err != nil {
		b.Fatal(err)
	}
	b.wantLeft(lim, ipKey, 8)
}

// costAfterDryRun charges what is admitted, and serves the rest.
func costAfterDryRun(b *testbed) {
	limit := after(b.fixed(9), 2, guard.DryRun())
	s := b.behind(limit, Route{Path: "/a", Handler: Handler{Costs: []int64{8}}})
	for range 3 {
		ans := s.get("/a")
		ans.wantServed()
		ans.wantNoHeaders()
		b.wantLeft(limit.Limiter, ipKey, 1)
	}
}

// costAfterDelayed has a queue, whose places cannot be given back but by nothing.
func costAfterDelayed(b *testbed) {
	lim := b.limiter(core.LeakyBucket(core.PerMinute(60), core.Burst(9)))
	s := b.behind(after(Limit{Limiter: lim, Key: keyfunc.IP()}, 2),
		Route{Path: "/more", Handler: Handler{Costs: []int64{7}}}, Route{Path: "/nothing", Handler: Handler{Costs: []int64{0}}})
	s.get("/nothing").wantServed()
	b.wantLeft(lim, ipKey, 9)
	s.get("/more").wantServed()
	b.wantLeft(lim, ipKey, 7)
}

// costAfterOutage settles where it reserved: by the count of this process, nowhere, or
// not at all.
func costAfterOutage(b *testbed) {
	serve := func(b *testbed, policy core.Option) *servedApp {
		b.Helper()
		b.redis.SetError("LOADING secret detail")
		lim := core.MustNew(b.client, "api", core.FixedWindow(core.PerMinute(9)), policy)
		return b.behind(after(Limit{Limiter: lim, Key: keyfunc.IP()}, 2), Route{Path: "/a", Handler: Handler{Costs: []int64{8}}})
	}
	b.each("FailLocal", func(b *testbed) {
		s := serve(b, core.FailLocal())
		s.get("/a").wantServed()
		ans := s.get("/a")
		ans.wantDenied()
		ans.wantHeader("X-RateLimit-Remaining", "1")
	})
	b.each("FailOpen", func(b *testbed) {
		s := serve(b, core.FailOpen())
		for range 3 {
			ans := s.get("/a")
			ans.wantServed()
			ans.wantNoHeaders()
		}
	})
	b.each("FailClosed", func(b *testbed) {
		s := serve(b, core.FailClosed())
		s.get("/a").wantStatus(http.StatusServiceUnavailable)
	})
	// Redis goes away while the request is served, which succeeds. What is held is
	// charged when the hold expires, and the request's end is not sent again.
	b.each("Meanwhile", func(b *testbed) {
		var calls atomic.Int64
		limit := after(b.fixed(9), 2)
		gate, open := b.gate()
		s := b.behind(limit, Route{Path: "/a", Handler: Handler{Do: Wait, Gate: gate, Costs: []int64{8}, Calls: &calls}})
		b.Cleanup(open)
		_, done := s.start("/a")
		b.until("the handler runs", func() bool { return calls.Load() == 1 })
		b.redis.SetError("LOADING secret detail")
		open()
		ans := <-done
		ans.wantServed()
		ans.wantHidden("secret detail")
		s.close()
		b.redis.SetError("")
		if n := b.logs.count("not settled"); n != 0 {
			b.Errorf("%d lines logged about the request, besides the outage", n)
		}
		var left int64
		b.until("Redis is asked again", func() bool {
			res, err := limit.Limiter.Peek(b.Context(), ipKey)
			left = res.Remaining
			return err == nil
		})
		if left != 7 {
			b.Errorf("%d left, want 7: what is held", left)
		}
	})
}
