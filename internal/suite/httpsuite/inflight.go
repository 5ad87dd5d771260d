package httpsuite

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/internal/hook"
	"github.com/redislimit/redislimit/keyfunc"
)

// inFlightCases are about slots, which a request holds until its response has ended.
func inFlightCases() []testCase {
	return []testCase{
		{"InFlight", inFlight, nil},
		{"InFlightEndings", inFlightEndings, nil},
		{"InFlightStream", inFlightStream, nil},
		{"InFlightStreamLeft", inFlightStreamLeft, nil},
		{"InFlightUpgrade", inFlightUpgrade, nil},
		{"InFlightGone", inFlightGone, []Ability{Gone}},
		{"InFlightGoneWhileDelayed", inFlightGoneWhileDelayed, []Ability{Gone}},
		{"InFlightStacked", inFlightStacked, nil},
		{"InFlightAmongSeveral", inFlightAmongSeveral, nil},
		{"InFlightSettled", inFlightSettled, nil},
		{"InFlightTiers", inFlightTiers, nil},
		{"InFlightDryRun", inFlightDryRun, nil},
		{"InFlightLost", inFlightLost, nil},
		{"InFlightOutage", inFlightOutage, nil},
		{"InFlightIETF", inFlightIETF, nil},
	}
}

// slots limits by address how many requests are under way. No slot is renewed by itself
// during a test.
func (b *testbed) slots(n int64, options ...guard.Option) Limit {
	return Limit{Limiter: b.limiter(core.InFlight(n, core.Hold(time.Hour))), Key: keyfunc.IP(), Options: options}
}

// waiting serves a handler that waits, at /a, behind limit, and has one request wait
// there. It returns what ends that.
func (b *testbed) waiting(limit Limit, h Handler, routes ...Route) (s *servedApp, end func() answer) {
	b.Helper()
	var calls atomic.Int64
	gate, open := b.gate()
	h.Gate, h.Calls = gate, &calls
	s = b.behind(limit, append(routes, Route{Path: "/a", Handler: h})...)
	b.Cleanup(open)
	_, done := s.start("/a")
	b.until("the handler runs", func() bool { return calls.Load() == 1 })
	return s, func() answer {
		open()
		return <-done
	}
}

func inFlight(b *testbed) {
	limit := b.slots(1)
	s, end := b.waiting(limit, Handler{Do: Wait})
	for range 2 {
		ans := s.get("/a")
		ans.wantDenied()
		ans.wantHeaders("1", "0", "", "1")
	}
	ans := end()
	ans.wantServed()
	ans.wantHeaders("1", "0", "", "")
	b.untilLeft(limit.Limiter, ipKey, 1)
	ans = s.get("/a")
	ans.wantServed()
	b.untilLeft(limit.Limiter, ipKey, 1)
	if keys := b.redis.Keys(); len(keys) != 0 {
		b.Errorf("stored is %v", keys)
	}
}

// inFlightEndings ends a request in every way: its slots are free, whether it is settled
// besides or not.
func inFlightEndings(b *testbed) {
	for _, e := range endings() {
		for _, point := range []MountPoint{Everywhere, InGroup, OnRoute} {
			if e.status == http.StatusNotFound && point != Everywhere {
				continue // nothing is mounted there
			}
			b.each(fmt.Sprintf("%s/%s", e.name, point), func(b *testbed) {
				limit := b.slots(9, estimate(2))
				app := mountedAt(point, limit, Route{Path: "/a", Handler: e.handler})
				app.Recover, app.Renders = true, !e.bare
				path := "/g/a"
				if e.status == http.StatusNotFound {
					path = "/nowhere"
				}
				s := b.serve(app)
				if ans := s.get(path); e.status != 0 && ans.status != e.status {
					b.Errorf("status %d, want %d", ans.status, e.status)
				}
				s.close()
				b.untilLeft(limit.Limiter, ipKey, 9)
			})
		}
	}
}

// inFlightStream holds the slot until all of the body is sent.
func inFlightStream(b *testbed) {
	limit := b.slots(1)
	s, end := b.waiting(limit, Handler{Do: Stream})
	s.get("/a").wantDenied()
	end().want(http.StatusOK, "one\ntwo\n")
	b.untilLeft(limit.Limiter, ipKey, 1)
}

// inFlightStreamLeft has the client leave: the slot is held until the handler returns.
func inFlightStreamLeft(b *testbed) {
	var calls atomic.Int64
	limit := b.slots(1)
	gate, open := b.gate()
	s := b.behind(limit, Route{Path: "/a", Handler: Handler{Do: Stream, Gate: gate, Calls: &calls}})
	b.Cleanup(open)
	leave, done := s.start("/a")
	b.until("the handler runs", func() bool { return calls.Load() == 1 })
	leave()
	<-done
	b.wantLeft(limit.Limiter, ipKey, 0)
	open()
	b.untilLeft(limit.Limiter, ipKey, 1)
}

func inFlightUpgrade(b *testbed) {
	limit := b.slots(1)
	s := b.behind(limit, Route{Path: "/a", Handler: Handler{Do: Upgrade}})
	for range 2 {
		s.upgrade("/a", http.StatusSwitchingProtocols)
		b.untilLeft(limit.Limiter, ipKey, 1)
	}
}

// inFlightGone has the client leave before it is answered.
func inFlightGone(b *testbed) {
	var calls atomic.Int64
	limit := b.slots(1)
	s := b.behind(limit, Route{Path: "/a", Handler: Handler{Do: AwaitGone, Calls: &calls}})
	leave, done := s.start("/a")
	b.until("the handler runs", func() bool { return calls.Load() == 1 })
	b.wantLeft(limit.Limiter, ipKey, 0)
	leave()
	<-done
	b.untilLeft(limit.Limiter, ipKey, 1)
}

// inFlightGoneWhileDelayed has the client leave the queue of a leaky bucket.
func inFlightGoneWhileDelayed(b *testbed) {
	var decided atomic.Int64
	lim := b.limiter(core.LeakyBucket(core.Per(1, testTimeout/2), core.Burst(3)), core.InFlight(5, core.Hold(time.Hour)),
		core.Observe(func(_ context.Context, e core.Event) {
			if e.Kind == core.EventDecision {
				decided.Add(1)
			}
		}))
	s := b.behind(Limit{Limiter: lim, Key: keyfunc.IP()}, Route{Path: "/a"})
	s.get("/a").wantServed()
	leave, done := s.start("/a")
	b.until("in the queue", func() bool { return decided.Load() == 2 })
	leave()
	<-done
	s.close()
	res, err := lim.Peek(b.Context(), ipKey)
	if err != nil {
		b.Fatal(err)
	}
	for each := range res.All() {
		if want := map[string]int64{"inflight": 5}[each.Name]; want > 0 && each.Remaining != want {
			b.Errorf("%s: %d left, want %d", each.Name, each.Remaining, want)
		}
	}
}

// inFlightStacked has slots within a limit with a rate, and around one that denies. The
// headers are of the slots only where these deny.
func inFlightStacked(b *testbed) {
	outer := Limit{Limiter: b.named("outer", core.FixedWindow(core.PerMinute(9))), Key: keyfunc.IP()}
	slots := b.slots(1)
	inner := Limit{Limiter: b.named("inner", core.FixedWindow(core.PerMinute(1))), Key: keyfunc.IP()}
	var calls atomic.Int64
	gate, open := b.gate()
	s := b.serve(App{Use: []Mount{outer, slots, inner}, Routes: []Route{{Path: "/a", Handler: Handler{Do: Wait, Gate: gate, Calls: &calls}}}})
	b.Cleanup(open)
	_, done := s.start("/a")
	b.until("the handler runs", func() bool { return calls.Load() == 1 })
	ans := s.get("/a")
	ans.wantDenied()
	ans.wantHeaders("1", "0", "", "1")
	open()
	ans = <-done
	ans.wantServed()
	ans.wantHeaders("1", "0", "1800000073", "") // of the inner window
	b.untilLeft(slots.Limiter, ipKey, 1)
	ans = s.get("/a")
	ans.wantDenied()
	ans.wantHeaders("1", "0", "1800000073", "60")
	b.untilLeft(slots.Limiter, ipKey, 1)
	b.wantLeft(outer.Limiter, ipKey, 6)
}

// inFlightAmongSeveral has slots beside a rate in one limiter, which keeps its charge.
func inFlightAmongSeveral(b *testbed) {
	lim := b.limiter(core.InFlight(1, core.Hold(time.Hour)), core.FixedWindow(core.PerMinute(9)))
	s, end := b.waiting(Limit{Limiter: lim, Key: keyfunc.IP()}, Handler{Do: Wait})
	ans := s.get("/a")
	ans.wantDenied()
	ans.wantHeaders("1", "0", "", "1")
	ans = end()
	ans.wantServed()
	ans.wantHeaders("9", "8", "1800000073", "")
	b.until("the slot is free", func() bool {
		res, err := lim.Peek(b.Context(), ipKey)
		return err == nil && res.Allowed
	})
	b.wantLeft(lim, ipKey, 8)
}

// inFlightSettled frees the slot where the response is settled.
func inFlightSettled(b *testbed) {
	for name, option := range map[string]guard.Option{
		"CountIf": guard.CountIf(func(status int) bool { return status >= 400 }), "CostAfter": guard.CostAfter(),
	} {
		b.each(name, func(b *testbed) {
			lim := b.limiter(core.InFlight(1, core.Hold(time.Hour)), core.FixedWindow(core.PerMinute(9)))
			s, end := b.waiting(Limit{Limiter: lim, Key: keyfunc.IP(), Options: []guard.Option{option}}, Handler{Do: Wait, Costs: []int64{0}})
			s.get("/a").wantDenied()
			end().wantServed()
			b.until("all is given back", func() bool {
				res, err := lim.Peek(b.Context(), ipKey)
				return err == nil && res.Allowed && res.Remaining == 9
			})
		})
	}
}

// inFlightTiers frees the slots of the limiter that decided, and of limits by request.
func inFlightTiers(b *testbed) {
	gold := b.named("gold", core.InFlight(3, core.Hold(time.Hour)))
	limit := b.slots(1, guard.LimiterFor(func(r keyfunc.Request) *core.Limiter {
		if r.Header("Tier") == "gold" {
			return gold
		}
		return nil
	}), guard.LimitFor(func(r keyfunc.Request) ([]core.Limit, error) {
		if r.Header("Tier") == "silver" {
			return []core.Limit{core.InFlight(2, core.Hold(time.Hour))}, nil
		}
		return nil, nil
	}))
	s, end := b.waiting(limit, Handler{Do: Wait}, Route{Path: "/b"})
	s.get("/b").wantDenied()
	ans := s.get("/b", "Tier: silver") // the same slots, of which there are two
	ans.wantServed()
	ans.wantHeaders("2", "0", "", "")
	ans = s.get("/b", "Tier: gold")
	ans.wantServed()
	ans.wantHeaders("3", "2", "", "")
	b.untilLeft(gold, ipKey, 3)
	end().wantServed()
	b.untilLeft(limit.Limiter, ipKey, 1)
}

// inFlightDryRun takes and frees slots, and serves those without one.
func inFlightDryRun(b *testbed) {
	limit := b.slots(1, guard.DryRun())
	s, end := b.waiting(limit, Handler{Do: Wait}, Route{Path: "/b"})
	ans := s.get("/b")
	ans.wantServed()
	ans.wantNoHeaders()
	b.wantLeft(limit.Limiter, ipKey, 0)
	end().wantServed()
	b.untilLeft(limit.Limiter, ipKey, 1)
}

// inFlightLost has Redis lose a slot: the context of the request is canceled, with the
// cause, and that of what comes after it is not.
func inFlightLost(b *testbed) {
	var calls atomic.Int64
	limit := b.slots(1)
	s := b.behind(limit, Route{Path: "/a", Handler: Handler{Do: AwaitCause, Calls: &calls}}, Route{Path: "/b"})
	_, done := s.start("/a")
	b.until("the handler runs", func() bool { return calls.Load() == 1 })
	hook.Renew(limit.Limiter)
	s.get("/b").wantDenied() // it is still there
	b.redis.FlushAll()
	hook.Renew(limit.Limiter)
	(<-done).want(http.StatusOK, core.ErrSlotLost.Error())
	s.get("/b").wantServed()
	b.untilLeft(limit.Limiter, ipKey, 1)
}

// inFlightOutage counts in this process while Redis is away, and frees there.
func inFlightOutage(b *testbed) {
	b.each("FailLocal", func(b *testbed) {
		b.redis.SetError("LOADING secret detail")
		lim := core.MustNew(b.client, "api", core.InFlight(4, core.Hold(time.Hour)), core.FailLocal(), core.Processes(4))
		s, end := b.waiting(Limit{Limiter: lim, Key: keyfunc.IP()}, Handler{Do: Wait}, Route{Path: "/b"})
		ans := s.get("/b")
		ans.wantDenied()
		ans.wantHeaders("1", "0", "", "1")
		end().wantServed()
		b.until("the slot is free", func() bool { return s.get("/b").status == http.StatusOK })
	})
	b.each("FailOpen", func(b *testbed) {
		b.redis.SetError("LOADING secret detail")
		lim := core.MustNew(b.client, "api", core.InFlight(1), core.FailOpen())
		s, end := b.waiting(Limit{Limiter: lim, Key: keyfunc.IP()}, Handler{Do: Wait}, Route{Path: "/b"})
		s.get("/b").wantServed()
		end().wantServed()
	})
	b.each("FailClosed", func(b *testbed) {
		b.redis.SetError("LOADING secret detail")
		lim := core.MustNew(b.client, "api", core.InFlight(1), core.FailClosed())
		s := b.behind(Limit{Limiter: lim, Key: keyfunc.IP()}, Route{Path: "/a"})
		s.get("/a").wantStatus(http.StatusServiceUnavailable)
	})
	// Redis goes away while the request is served: the slot is free when it expires.
	b.each("Meanwhile", func(b *testbed) {
		limit := b.slots(1)
		s, end := b.waiting(limit, Handler{Do: Wait})
		b.redis.SetError("LOADING secret detail")
		ans := end()
		ans.wantServed()
		ans.wantHidden("secret detail")
		s.close()
		b.redis.SetError("")
		if n := b.logs.count("not released"); n != 0 {
			b.Errorf("%d lines logged about the request, besides the outage", n)
		}
		b.until("Redis is asked again", func() bool {
			_, err := limit.Limiter.Peek(b.Context(), ipKey)
			return err == nil
		})
		b.wantLeft(limit.Limiter, ipKey, 0)
		b.advance(time.Hour)
		b.wantLeft(limit.Limiter, ipKey, 1)
	})
}

// inFlightIETF tells slots in the draft's own unit, without a window.
func inFlightIETF(b *testbed) {
	lim := b.limiter(core.InFlight(1, core.Hold(time.Hour)), core.FixedWindow(core.PerMinute(9)))
	s, end := b.waiting(Limit{Limiter: lim, Key: keyfunc.IP(), Options: []guard.Option{guard.Headers(guard.IETF)}}, Handler{Do: Wait})
	ans := s.get("/a")
	ans.wantDenied()
	ans.wantHeader("RateLimit-Policy", `"api-inflight";q=1;qu="concurrent-requests", "api-fixed-1m";q=9;w=60`)
	ans.wantHeader("RateLimit", `"api-inflight";r=0;t=1, "api-fixed-1m";r=8;t=60`)
	ans = end()
	ans.wantServed()
	ans.wantHeader("RateLimit", `"api-inflight";r=0, "api-fixed-1m";r=8;t=60`)
}
