package httpsuite

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2/server"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/internal/inside"
	"github.com/redislimit/redislimit/internal/testkit/limits"
	"github.com/redislimit/redislimit/keyfunc"
)

// settleCases test CountIf, CostAfter and InFlight, except for how a response ends.
func settleCases() []testCase {
	return []testCase{
		{"CountIfConcurrent", countIfConcurrent, nil},
		{"CountIfSavesNothing", countIfSavesNothing, nil},
		{"CostAfter", costAfter, nil},
		{"CostAfterWrong", costAfterWrong, nil},
		{"CostAfterMissing", costAfterMissing, nil},
		{"CostAfterStacked", costAfterStacked, nil},
		{"SettledLater", settledLater, nil},
		{"InFlight", inFlight, nil},
		{"InFlightStacked", inFlightStacked, nil},
		{"InFlightLost", inFlightLost, nil},
		{"SettledByTier", settledByTier, nil},
		{"SettledInDryRun", settledInDryRun, nil},
		{"SettledInOutage", settledInOutage, nil},
	}
}

// estimate returns the option for a cost of n.
func estimate(n int64) guard.Option { return guard.Cost(func(keyfunc.Request) int64 { return n }) }

// after makes limit reserve n units for each request, and charge the cost that the handler sets.
func after(limit Limit, n int64, options ...guard.Option) Limit {
	limit.Options = append([]guard.Option{guard.CostAfter(), estimate(n)}, options...)
	return limit
}

// slots limits how many requests of an address are in flight. No slot is renewed in the background during a test.
func (b *testbed) slots(n int64, options ...guard.Option) Limit {
	return Limit{Limiter: b.limiter(core.InFlight(n, core.SlotTTL(time.Hour))), Key: keyfunc.IP(), Options: options}
}

// failedLogins is a limit that counts only requests that end with 401.
func failedLogins(lim *core.Limiter) Limit {
	return Limit{Limiter: lim, Key: keyfunc.IP(), Options: []guard.Option{
		guard.CountIf(func(status int) bool { return status == http.StatusUnauthorized }),
	}}
}

// untilLeft waits until a response that has ended is settled: the client may have received all of it before.
func (b *testbed) untilLeft(lim *core.Limiter, key string, want int64) {
	b.Helper()
	b.until(fmt.Sprintf("%d units of key %s of limiter %s remain", want, key, lim.Name()), func() bool { return b.left(lim, key) == want })
}

// gate returns a channel that handlers wait for, and a function that opens it. Call the function in a Cleanup, too, after
// the app is served, so that a failed test ends.
func (b *testbed) gate() (gate <-chan struct{}, open func()) {
	opened := make(chan struct{})
	return opened, sync.OnceFunc(func() { close(opened) })
}

// waiting serves a handler at /a that waits, behind mounts, and sends one request there. It returns a function that ends
// the request.
func (b *testbed) waiting(h Handler, mounts ...Mount) (s *servedApp, end func() answer) {
	b.Helper()
	var calls atomic.Int64
	gate, open := b.gate()
	h.Do, h.Gate, h.Calls = Wait, gate, &calls
	s = b.serve(App{Use: mounts, Routes: []Route{{Path: "/a", Handler: h}, {Path: "/b"}}})
	b.Cleanup(open)
	_, done := s.start("/a")
	b.until("the handler runs", func() bool { return calls.Load() == 1 })
	return s, func() answer {
		open()
		return <-done
	}
}

// countIfConcurrent makes many logins at once, which end in random order. Logins that succeed use up nothing, and each of
// the others one unit. Meanwhile the units of all are held.
func countIfConcurrent(b *testbed) {
	const logins, wrong = 20, 6
	random := rand.New(rand.NewPCG(1, 2))
	for _, v := range limits.Plain() {
		if v.Kind.Delays {
			continue
		}
		b.each(v.Name, func(b *testbed) {
			var calls atomic.Int64
			gates := map[string]chan struct{}{"/right": make(chan struct{}), "/wrong": make(chan struct{})}
			lim := b.limiter(v.Limit(core.PerHour(logins)))
			s := b.behind(failedLogins(lim),
				Route{Path: "/right", Handler: Handler{Do: Wait, Gate: gates["/right"], Calls: &calls}},
				Route{Path: "/wrong", Handler: Handler{Do: Wait, Gate: gates["/wrong"], Calls: &calls, Status: http.StatusUnauthorized}})
			for _, gate := range gates {
				b.Cleanup(func() { close(gate) }) // so that a failed test ends
			}
			paths := slices.Concat(slices.Repeat([]string{"/right"}, logins-wrong), slices.Repeat([]string{"/wrong"}, wrong))
			ends := make([]<-chan answer, logins)
			for i, path := range paths {
				_, ends[i] = s.start(path)
			}
			b.until("all handlers run", func() bool { return calls.Load() == logins })
			denied := s.get("/right")
			denied.wantDenied()
			denied.wantHeader("Retry-After", "1") // each login in flight may end at any time without a cost
			for _, i := range random.Perm(logins) {
				gates[paths[i]] <- struct{}{}
			}
			for i, end := range ends {
				(<-end).wantStatus(map[string]int{"/right": http.StatusOK, "/wrong": http.StatusUnauthorized}[paths[i]])
			}
			b.untilLeft(lim, ipKey, logins-wrong)
		})
	}
}

// countIfSavesNothing plays an attacker that knows one right password, opens many requests with it, and lets them end one
// by one while it guesses another password. None of these requests gives it a guess beyond the limit, because the units
// that they took have long drained.
func countIfSavesNothing(b *testbed) {
	const capacity, rounds = 5, 4
	for _, v := range limits.Plain() {
		b.each(v.Name, func(b *testbed) {
			var calls atomic.Int64
			gate := make(chan struct{})
			options := []core.Option{v.Limit(core.Per(capacity, capacity*time.Millisecond))} // a queue delays by this time per unit
			if !v.Kind.Delays {
				options = append(options, core.Hold(time.Minute))
			}
			s := b.behind(failedLogins(b.limiter(options...)),
				Route{Path: "/right", Handler: Handler{Do: Wait, Gate: gate, Calls: &calls}},
				Route{Path: "/wrong", Handler: Handler{Do: Fail, Status: http.StatusUnauthorized}})
			b.Cleanup(func() { close(gate) }) // so that a failed test ends
			var open []<-chan answer
			for range rounds {
				for range capacity {
					_, end := s.start("/right")
					open = append(open, end)
				}
				b.until("the requests are open", func() bool { return calls.Load() == int64(len(open)) })
				b.advance(71 * time.Second) // all holds have expired, and their units have drained
			}
			guesses := 0
			guess := func(times int) {
				for range times {
					if s.get("/wrong").status == http.StatusUnauthorized {
						guesses++
					}
				}
			}
			guess(capacity + 1)
			for range open {
				gate <- struct{}{}
				guess(1)
			}
			for _, end := range open {
				(<-end).wantServed()
			}
			guess(capacity + 1)
			if guesses != capacity {
				b.Errorf("%d guesses reached the handler, want %d", guesses, capacity)
			}
		})
	}
}

// costAfter is a gateway to a language model, with a limit of 1000 tokens a minute. It reserves 500 tokens for an answer of
// 7,312: the headers of the next request show the debt, and requests are denied until the debt is paid.
func costAfter(b *testbed) {
	lim := b.limiter(core.TokenBucket(core.PerMinute(1000)))
	s := b.behind(after(Limit{Limiter: lim, Key: keyfunc.IP()}, 500),
		Route{Path: "/long", Handler: Handler{Costs: []int64{1200, 7312}}}, // the last cost counts
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
	ans.wantHeaders("1000", "499", "1800000452", "1") // one less than the 500 that the request reserves
	b.advance(time.Microsecond)
	ans = s.get("/short")
	ans.wantServed()
	ans.wantHeaders("1000", "0", "1800000482", "")
	b.untilLeft(lim, ipKey, 480)
}

// costAfterMissing sets a cost that no middleware charges, which is logged once, and costs that a middleware charges, or
// would charge. Without any middleware, nothing is logged.
func costAfterMissing(b *testbed) {
	b.serve(App{Routes: []Route{{Path: "/a", Handler: Handler{Costs: []int64{3, -1}}}}}).get("/a").wantServed()
	if n := b.logs.lines(""); n != 0 {
		b.Errorf("%d lines were logged, want 0: %s", n, b.logs.String())
	}
	skipped := guard.Skip(func(keyfunc.Request) bool { return true })
	for name, c := range map[string]struct {
		options [2][]guard.Option // the options of the outer and the inner middleware
		want    int
	}{
		"nobody":      {[2][]guard.Option{{estimate(2)}, {guard.CountIf(func(int) bool { return true })}}, 1},
		"the outer":   {[2][]guard.Option{{guard.CostAfter()}, nil}, 0},
		"the inner":   {[2][]guard.Option{nil, {guard.CostAfter()}}, 0},
		"not of this": {[2][]guard.Option{nil, {guard.CostAfter(), skipped}}, 0},
	} {
		b.each(name, func(b *testbed) {
			outer, inner := b.namedFixed("outer", 90), b.namedFixed("inner", 90)
			outer.Options, inner.Options = c.options[0], c.options[1]
			s := b.serve(App{Use: []Mount{outer, inner}, Routes: []Route{{Path: "/a", Handler: Handler{Costs: []int64{3, 4}}}}})
			for range 3 {
				s.get("/a").wantServed()
			}
			s.close()
			if n := b.logs.lines("WARN"); n != c.want || b.logs.Count("passes no middleware with guard.CostAfter") != n {
				b.Errorf("%d warnings were logged, want %d: %s", n, c.want, b.logs.String())
			}
		})
	}
}

// costAfterWrong sets costs that no request can have. This is logged once for each middleware.
func costAfterWrong(b *testbed) {
	for _, c := range []struct{ cost, charged int64 }{{-1, 4}, {2_000_000_000, 1_000_000_000}} {
		b.each(fmt.Sprint(c.cost), func(b *testbed) {
			lim := b.limiter(core.TokenBucket(core.PerSecond(1_000_000), core.Burst(1_000_000_000)))
			s := b.behind(after(Limit{Limiter: lim, Key: keyfunc.IP()}, 4), Route{Path: "/a", Handler: Handler{Costs: []int64{3, c.cost}}})
			for range 2 {
				s.get("/a").wantServed()
				b.untilLeft(lim, ipKey, 1_000_000_000-c.charged)
				b.advance(2000 * time.Second)
			}
			want := fmt.Sprintf("cost=%d charged=%d limiter=api", c.cost, c.charged)
			if n := b.logs.lines(""); n != 1 || b.logs.Count(want) != 1 {
				b.Errorf("%d lines were logged, want 1, with %q: %s", n, want, b.logs.String())
			}
		})
	}
}

// costAfterStacked uses a limit of tokens among others. Only limits with CostAfter charge the cost.
func costAfterStacked(b *testbed) {
	requests, tokens := b.namedFixed("requests", 9), after(b.namedFixed("tokens", 100), 10)
	failures, money := failedLogins(b.named("failures", core.FixedWindow(core.PerMinute(9)))), after(b.namedFixed("money", 50), 1)
	failures.Options = []guard.Option{guard.CountIf(func(status int) bool { return status >= 400 })}
	untilLeft := func(ofRequests, ofTokens, ofFailures, ofMoney int64) {
		b.Helper()
		b.untilLeft(requests.Limiter, ipKey, ofRequests)
		b.untilLeft(tokens.Limiter, ipKey, ofTokens)
		b.untilLeft(failures.Limiter, ipKey, ofFailures)
		b.untilLeft(money.Limiter, ipKey, ofMoney)
	}
	s := b.serve(App{Use: []Mount{requests, tokens, failures, money}, Routes: []Route{{Path: "/a", Handler: Handler{Costs: []int64{42}}}}})
	s.get("/a").wantServed()
	untilLeft(8, 58, 9, 8)

	// An inner limit denies: for the outer limits, the request has ended with its status.
	money = after(b.namedFixed("money", 50), 51)
	b.serve(App{Use: []Mount{requests, tokens, failures, money}, Routes: []Route{{Path: "/a"}}}).get("/a").wantDenied()
	untilLeft(7, 48, 8, 8)
}

// settledLater ends a response while Redis takes long to settle it. The response does not wait if the next 16 such requests
// would be decided in the same way meanwhile, and waits otherwise.
func settledLater(b *testbed) {
	const units = 3 // each request takes 3 units, and gives them back if it costs nothing
	const next = 16 * units
	for name, c := range map[string]struct {
		limits  []core.Option
		countIf bool
		cost    int64 // the cost that the handler sets
		waits   bool
	}{
		"FreesNothing":  {limits: []core.Option{core.FixedWindow(core.PerMinute(units + next))}, cost: units},
		"NextFits":      {limits: []core.Option{core.FixedWindow(core.PerMinute(units + next))}, countIf: true},
		"NextMissesIt":  {limits: []core.Option{core.FixedWindow(core.PerMinute(units + next - 1))}, countIf: true, waits: true},
		"DebtThatFits":  {limits: []core.Option{core.GCRA(core.PerHour(units + 2*next))}, cost: 2 * units},
		"Debt":          {limits: []core.Option{core.GCRA(core.PerHour(units + 2*next))}, cost: 2*units + 1, waits: true},
		"TheTighterOne": {limits: []core.Option{core.FixedWindow(core.PerMinute(100)), core.GCRA(core.PerHour(units))}, countIf: true, waits: true},
		"Slots":         {limits: []core.Option{core.InFlight(100), core.FixedWindow(core.PerMinute(100))}, countIf: true, waits: true},
		"CostsNothing":  {limits: []core.Option{core.FixedWindow(core.PerMinute(units + next))}},
	} {
		b.each(name, func(b *testbed) {
			lim := b.limiter(c.limits...)
			limit := after(Limit{Limiter: lim, Key: keyfunc.IP()}, units, guard.CountIf(func(int) bool { return !c.countIf }))
			s, end := b.waiting(Handler{Costs: []int64{c.cost}}, limit)
			defer s.close()
			settles := make(chan struct{}, 100)
			answers, open := b.gate()
			defer open()
			b.redis.Server().SetPreHook(func(_ *server.Peer, cmd string, _ ...string) bool {
				if strings.HasPrefix(cmd, "EVAL") {
					settles <- struct{}{}
					<-answers
				}
				return false
			})
			ended := make(chan answer)
			go func() { ended <- end() }()
			<-settles
			if c.waits {
				select {
				case <-ended:
					b.Fatal("the response ended before it was settled, want it to wait")
				case <-time.After(50 * time.Millisecond):
				}
				open()
			}
			if ans := <-ended; ans.status != http.StatusOK {
				b.Errorf("got status %d, want 200", ans.status)
			}
			open()
			want := int64(0)
			if !c.countIf {
				want = c.cost
			}
			b.untilUsed(lim, want)
		})
	}
}

// untilUsed waits until this number of units is used in each limit that has a rate.
func (b *testbed) untilUsed(lim *core.Limiter, want int64) {
	b.Helper()
	b.until(fmt.Sprintf("%d units are used", want), func() bool {
		res, err := lim.Peek(b.Context(), ipKey)
		for each := range res.All() {
			if err != nil || each.Window > 0 && each.Limit-each.Remaining != min(want, each.Limit) {
				return false
			}
		}
		return true
	})
}

// inFlight takes a slot, alone and beside a rate, whose charge stays. The headers describe the slots only if these deny,
// and then have no reset. In the headers of the IETF draft, slots have a unit of their own.
func inFlight(b *testbed) {
	alone := b.slots(1)
	s, end := b.waiting(Handler{}, alone)
	for range 2 {
		ans := s.get("/a")
		ans.wantDenied()
		ans.wantHeaders("1", "0", "", "1")
	}
	ans := end()
	ans.wantServed()
	ans.wantHeaders("1", "0", "", "")
	b.untilLeft(alone.Limiter, ipKey, 1)
	if keys := b.redis.Keys(); len(keys) != 0 {
		b.Errorf("the keys %v are stored, want none", keys)
	}

	lim := b.limiter(core.InFlight(1, core.SlotTTL(time.Hour)), core.FixedWindow(core.PerMinute(9)))
	s, end = b.waiting(Handler{}, Limit{Limiter: lim, Key: keyfunc.IP(), Options: []guard.Option{guard.Headers(guard.XRateLimit | guard.IETF)}})
	ans = s.get("/a")
	ans.wantDenied()
	ans.wantHeaders("1", "0", "", "1")
	ans.wantHeader("RateLimit-Policy", `"api-inflight";q=1;qu="concurrent-requests", "api-fixed-1m";q=9;w=60`)
	ans.wantHeader("RateLimit", `"api-inflight";r=0;t=1, "api-fixed-1m";r=8;t=60`)
	ans = end()
	ans.wantServed()
	ans.wantHeaders("9", "8", "1800000073", "")
	ans.wantHeader("RateLimit", `"api-inflight";r=0, "api-fixed-1m";r=8;t=60`)
}

// inFlightStacked mounts slots inside a limit with a rate, and outside a limit that denies. The headers describe the slots
// only if these deny.
func inFlightStacked(b *testbed) {
	outer, slots, inner := b.namedFixed("outer", 9), b.slots(1), b.namedFixed("inner", 1)
	s, end := b.waiting(Handler{}, outer, slots, inner)
	ans := s.get("/a")
	ans.wantDenied()
	ans.wantHeaders("1", "0", "", "1")
	ans = end()
	ans.wantServed()
	ans.wantHeaders("1", "0", "1800000073", "") // the headers of the inner window
	b.untilLeft(slots.Limiter, ipKey, 1)
	ans = s.get("/a")
	ans.wantDenied()
	ans.wantHeaders("1", "0", "1800000073", "60")
	b.untilLeft(slots.Limiter, ipKey, 1)
	b.wantLeft(outer.Limiter, ipKey, 6)
}

// inFlightLost makes Redis lose a slot: the context of the request is canceled, with the cause, and the contexts of later
// requests are not.
func inFlightLost(b *testbed) {
	var calls atomic.Int64
	limit := b.slots(1)
	s := b.behind(limit, Route{Path: "/a", Handler: Handler{Do: AwaitCause, Calls: &calls}}, Route{Path: "/b"})
	_, done := s.start("/a")
	b.until("the handler runs", func() bool { return calls.Load() == 1 })
	inside.Core.Driver(limit.Limiter).Renew()
	s.get("/b").wantDenied() // the slot is still held
	b.redis.FlushAll()
	inside.Core.Driver(limit.Limiter).Renew()
	(<-done).want(http.StatusOK, core.ErrSlotLost.Error())
	s.get("/b").wantServed()
	b.untilLeft(limit.Limiter, ipKey, 1)
}

// settledModes are the modes in which units or slots are held while a request is served.
func settledModes() []mode {
	return slices.DeleteFunc(modes(), func(m mode) bool { return m.name == "Plain" || m.and })
}

// settledByTier checks that a request is charged, and its slot freed, by the limiter that decided: by another limiter for a
// tier, or by one with limits of the request.
func settledByTier(b *testbed) {
	for _, m := range settledModes() {
		b.each(m.name, func(b *testbed) {
			var saw statusLog
			limit := m.limit(b, &saw)
			other := b.named("gold", core.InFlight(quota), core.FixedWindow(core.PerMinute(quota)))
			contract, err := limit.Limiter.With(core.InFlight(quota), core.FixedWindow(core.PerHour(quota)))
			if err != nil {
				b.Fatal(err)
			}
			for _, chosen := range []*core.Limiter{other, contract} {
				of := limit
				of.Options = append(slices.Clone(limit.Options), guard.LimiterFor(func(keyfunc.Request) (*core.Limiter, error) { return chosen, nil }))
				_, end := b.waiting(Handler{Costs: []int64{realCost}}, of)
				b.wantLeftOfEach(chosen, []int64{quota - reserved, quota - reserved})
				end().wantServed()
				b.untilLeftOfEach(chosen, []int64{quota, quota - m.charged(realCost, http.StatusOK)})
			}
			b.wantLeftOfEach(limit.Limiter, m.left(0, 0))
		})
	}
}

// settledInDryRun charges and frees as usual, serves requests that would be denied, and shows nothing to clients.
func settledInDryRun(b *testbed) {
	tooMuch := guard.Cost(func(r keyfunc.Request) int64 { return map[string]int64{"/a": reserved, "/b": quota}[r.Path()] })
	for _, m := range settledModes() {
		b.each(m.name, func(b *testbed) {
			var saw statusLog
			limit := m.limit(b, &saw)
			limit.Options = append(limit.Options[1:], guard.DryRun(), tooMuch) // replaces the estimate
			s, end := b.waiting(Handler{Costs: []int64{realCost}}, limit)
			ans := s.get("/b")
			ans.wantServed()
			ans.wantNoHeaders()
			b.wantLeftOfEach(limit.Limiter, m.left(reserved, reserved))
			end().wantServed()
			b.untilLeftOfEach(limit.Limiter, m.left(0, m.charged(realCost, http.StatusOK)))
		})
	}
}

// settledInOutage makes Redis unavailable from the start, and then while a request is served.
func settledInOutage(b *testbed) {
	const cause = "LOADING secret detail"
	for _, m := range settledModes() {
		// The request is charged, and its slot freed, by the count of this process.
		b.each(m.name+"/FailLocal", func(b *testbed) {
			var saw statusLog
			b.redis.SetError(cause)
			limit := m.limit(b, &saw)
			limit.Limiter = core.MustNew(b.client, "api", core.InFlight(quota, core.SlotTTL(time.Hour)), core.FixedWindow(core.PerMinute(quota)), core.FailLocal())
			s, end := b.waiting(Handler{Costs: []int64{realCost}}, limit)
			s.get("/b").wantServed()
			end().wantServed()
			b.untilLeftOfEach(limit.Limiter, []int64{quota, quota - m.charged(realCost, http.StatusOK) - m.charged(reserved, http.StatusOK)})
		})
		if m.slots == m.units {
			continue // this case takes a second, and several limits are settled together, as one limit is
		}
		// Held units stay held, and are charged when they expire. The settlement is not sent again.
		b.each(m.name+"/Meanwhile", func(b *testbed) {
			var saw statusLog
			limit := m.limit(b, &saw)
			s, end := b.waiting(Handler{Costs: []int64{realCost}}, limit)
			b.redis.SetError(cause)
			ans := end()
			ans.wantServed()
			ans.wantHidden("secret detail")
			s.close()
			_ = limit.Limiter.Close() // Close waits for calls in the background
			b.redis.SetError("")
			if n := b.logs.Count("not settled") + b.logs.Count("not released"); n != 0 {
				b.Errorf("%d lines were logged about the request, want 0, as the outage is logged", n)
			}
			b.until("Redis decides again", func() bool {
				_, err := limit.Limiter.Peek(b.Context(), ipKey)
				return err == nil
			})
			b.wantLeftOfEach(limit.Limiter, m.left(reserved, reserved))
			b.advance(time.Hour)
			b.wantLeftOfEach(limit.Limiter, m.left(0, 0))
		})
	}
	b.each("FailOpen", func(b *testbed) {
		b.redis.SetError(cause)
		lim := core.MustNew(b.client, "api", core.InFlight(1), core.FixedWindow(core.PerMinute(9)), core.FailOpen())
		s, end := b.waiting(Handler{}, after(Limit{Limiter: lim, Key: keyfunc.IP()}, 1))
		ans := s.get("/b")
		ans.wantServed()
		ans.wantNoHeaders()
		end().wantServed()
	})
}
