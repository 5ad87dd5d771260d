package httpsuite

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/keyfunc"
)

// answererCases test handlers that call a limiter themselves and answer by the adapter's Answerer.
func answererCases() []testCase {
	return []testCase{
		{"Answerer", answerer, nil},
		{"AnswererGone", answererGone, []Ability{Gone}},
		{"AnswererLate", answererLate, []Ability{Begins}},
	}
}

func answerer(b *testbed) {
	b.each("AsMiddleware", answersAsMiddleware)
	b.each("Handlers", answersByHandlers)
	b.each("Errors", answersErrors)
	b.each("Handles", answersHandles)
	b.each("NoDecision", answersNoDecision)
	b.each("Tightest", answersTightest)
	b.each("Stacked", answersStacked)
	b.each("NeverWaits", answersAtOnce)
	b.each("RetryJitter", answersWithJitter)
	b.each("FailOpen", answersFailOpen)
	b.each("Charged", answersAreCharged)
	b.each("Length", answersHaveTheirLength)
}

// charging returns an Ask that charges n units to a key that the middleware does not use.
func charging(lim *core.Limiter, n int64) Ask {
	return func(ctx context.Context) (core.Decision, error) { return lim.AllowN(ctx, "handler", n) }
}

// answering serves at /a a handler that calls limiters itself.
func (b *testbed) answering(answers Answers, asks ...Ask) *servedApp {
	b.Helper()
	return b.serve(App{Renders: true, Routes: []Route{{Path: "/a", Handler: Handler{Asks: asks, Answers: answers}}}})
}

// answersAsMiddleware compares two complete responses: of a middleware, and of a handler that calls the same limiter
// itself. Requests are admitted, denied, and sent during an outage.
func answersAsMiddleware(b *testbed) {
	minute := core.FixedWindow(core.PerMinute(2))
	for name, c := range map[string]struct {
		limits  []core.Option
		cost    int64
		options []guard.AnswerOption
	}{
		"Default":         {[]core.Option{minute}, 1, nil},
		"SeveralLimits":   {[]core.Option{minute, core.TokenBucket(core.PerHour(3))}, 1, []guard.AnswerOption{guard.Headers(guard.XRateLimit | guard.IETF)}},
		"Never":           {[]core.Option{minute}, 3, nil},
		"Ban":             {[]core.Option{minute, core.Ban(time.Hour)}, 1, nil},
		"Headers":         {[]core.Option{minute}, 1, []guard.AnswerOption{guard.Headers(guard.IETF)}},
		"NoHeaders":       {[]core.Option{minute}, 1, []guard.AnswerOption{guard.NoHeaders()}},
		"HeadersOnDenial": {[]core.Option{minute}, 1, []guard.AnswerOption{guard.HeadersOnDenial()}},
		"HeaderPrefix":    {[]core.Option{minute}, 1, []guard.AnswerOption{guard.HeaderPrefix("X-Rate-Limit-")}},
		"ResetInSeconds":  {[]core.Option{minute}, 1, []guard.AnswerOption{guard.ResetInSeconds()}},
		"MaxRetryAfter":   {[]core.Option{minute}, 1, []guard.AnswerOption{guard.MaxRetryAfter(7 * time.Second), guard.RetryAfterMs()}},
		"ExposeHeaders":   {[]core.Option{minute}, 1, []guard.AnswerOption{guard.ExposeHeaders()}},
	} {
		for _, renders := range []bool{false, true} {
			b.each(name+map[bool]string{true: "Rendered"}[renders], func(b *testbed) {
				lim := b.limiter(c.limits...)
				limit := Limit{Limiter: lim, Key: keyfunc.IP(), Options: []guard.Option{estimate(c.cost)}}
				for _, option := range c.options {
					limit.Options = append(limit.Options, option)
				}
				s := b.serve(App{Renders: renders, Routes: []Route{
					{Path: "/middleware", Use: []Mount{limit}},
					{Path: "/handler", Handler: Handler{Asks: []Ask{charging(lim, c.cost)}, Answers: Answers{Options: c.options}}},
				}})
				denied := false
				for range 4 {
					denied = s.wantSame() == http.StatusTooManyRequests
				}
				if !denied {
					b.Error("the fourth request was not denied, want 429")
				}
				b.redis.SetError("LOADING secret detail")
				if status := s.wantSame(); status != http.StatusServiceUnavailable {
					b.Errorf("got status %d during an outage, want 503", status)
				}
			})
		}
	}
}

// wantSame checks that the middleware and the handler give the same response, and returns its status.
func (s *servedApp) wantSame() int {
	s.Helper()
	want, got := s.get("/middleware"), s.get("/handler")
	for _, header := range []http.Header{want.header, got.header} {
		header.Del("Date")
	}
	if got.status != want.status || got.body != want.body || !reflect.DeepEqual(got.header, want.header) {
		s.Errorf("the handler's response is %d %q\n%v,\nwant that of the middleware, %d %q\n%v", got.status, got.body, got.header, want.status, want.body, want.header)
	}
	return got.status
}

// answersByHandlers makes the application's own handlers answer, which can see the decision.
func answersByHandlers(b *testbed) {
	for _, c := range append(handlerCases(),
		handlerCase{"ShowsResult", Handler{Do: ShowResult}, 0, "fixed-1m allowed=false limit=1 remaining=0 delay=0s"},
	) {
		b.each(c.name, func(b *testbed) {
			lim := b.limiter(core.FixedWindow(core.PerMinute(1)))
			s := b.answering(Answers{OnDenied: &c.handler, OnError: &Handler{Body: "the wrong one"}}, charging(lim, 1))
			s.get("/a").wantServed()
			ans := s.get("/a")
			ans.wantAnswerBy(c, http.StatusTooManyRequests)
			ans.wantHeaders("1", "0", "1800000073", "60")
		})
		if c.handler.Do == ShowResult {
			continue // after a failure there is no Result
		}
		b.each(c.name+"Error", func(b *testbed) {
			lim := b.limiter(core.FixedWindow(core.PerMinute(1)))
			answers := Answers{OnError: &c.handler, OnDenied: &Handler{Body: "the wrong one"}}
			b.redis.SetError("LOADING secret detail")
			ans := b.answering(answers, charging(lim, 1)).get("/a")
			ans.wantAnswerBy(c, http.StatusServiceUnavailable)
			ans.wantHeaders("", "", "", "1")
			b.answering(answers, charging(lim, -1)).get("/a").wantAnswerBy(c, http.StatusInternalServerError)
		})
	}
}

// answersErrors passes on all errors that a call of package core may return, some of them wrapped by the application. The
// client learns only the status. A mistake of the application is logged once, however often clients cause it.
func answersErrors(b *testbed) {
	lim, slots := b.limiter(core.FixedWindow(core.PerMinute(9))), b.named("slots", core.InFlight(1))
	queue := b.named("queue", core.LeakyBucket(core.PerMinute(9)))
	ended := func(why error) context.Context {
		if errors.Is(why, context.Canceled) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			return ctx
		}
		ctx, cancel := context.WithDeadline(context.Background(), time.Unix(1, 0))
		b.Cleanup(cancel)
		return ctx
	}
	for name, c := range map[string]struct {
		call   Ask
		status int
	}{
		"ErrUnavailable": {func(context.Context) (core.Decision, error) {
			return core.Result{}, fmt.Errorf("secret detail: %w", core.ErrUnavailable)
		}, http.StatusServiceUnavailable},
		"unavailable, and canceled because of that": {func(context.Context) (core.Decision, error) {
			return core.Result{}, fmt.Errorf("secret detail: %w: %w", core.ErrUnavailable, context.Canceled)
		}, http.StatusServiceUnavailable},
		"a deadline of the handler's own": {func(context.Context) (core.Decision, error) {
			return lim.Allow(ended(context.DeadlineExceeded), "handler")
		}, http.StatusServiceUnavailable},
		"a context of the handler's own": {func(context.Context) (core.Decision, error) {
			return lim.Reserve(ended(context.Canceled), "handler", 1)
		}, http.StatusServiceUnavailable},
		"ErrSlotLost": {func(context.Context) (core.Decision, error) {
			return core.Result{}, fmt.Errorf("secret detail: %w", core.ErrSlotLost)
		}, http.StatusInternalServerError},
		"ErrInvalidKey":  {func(ctx context.Context) (core.Decision, error) { return lim.Allow(ctx, "") }, http.StatusInternalServerError},
		"ErrInvalidCost": {func(ctx context.Context) (core.Decision, error) { return lim.AllowN(ctx, "handler", -1) }, http.StatusInternalServerError},
		"ErrInvalidCost of several": {func(ctx context.Context) (core.Decision, error) {
			return core.ReserveAll(ctx, -1, lim.On("handler"))
		}, http.StatusInternalServerError},
		"invalid, of a client that has left": {func(context.Context) (core.Decision, error) {
			return core.Result{}, errors.Join(context.Canceled, core.ErrInvalidKey)
		}, http.StatusInternalServerError},
		"limits that cannot decide together": {func(ctx context.Context) (core.Decision, error) {
			return core.AllowAll(ctx, 1, lim.On("handler"), queue.On("handler"))
		}, http.StatusInternalServerError},
		"slots without an end": {func(ctx context.Context) (core.Decision, error) { return slots.Allow(ctx, "handler") }, http.StatusInternalServerError},
		"another error":        {func(context.Context) (core.Decision, error) { return nil, errors.New("secret detail") }, http.StatusInternalServerError},
		"ErrNeverAdmitted":     {func(ctx context.Context) (core.Decision, error) { return lim.WaitN(ctx, "handler", 10) }, http.StatusTooManyRequests},
		"an admission beside an error": {func(ctx context.Context) (core.Decision, error) {
			res, _ := lim.Allow(ctx, "another")
			return res, core.ErrUnavailable
		}, http.StatusServiceUnavailable},
	} {
		b.each(name, func(own *testbed) {
			s := own.answering(Answers{}, c.call)
			for range 3 {
				ans := s.get("/a")
				if ans.status != c.status || ans.body == "served" {
					own.Errorf("got status %d and body %q, want status %d", ans.status, ans.body, c.status)
				}
				ans.wantHeaders("", "", "", map[int]string{http.StatusServiceUnavailable: "1"}[c.status])
				ans.wantHidden("secret detail")
				ans.wantHidden("redislimit: ")
			}
			errorsLogged := map[bool]int{true: 1}[c.status == http.StatusInternalServerError]
			if n := own.logs.lines(""); n != errorsLogged || own.logs.Count("level=ERROR") != n {
				own.Errorf("%d lines were logged, want %d errors: %s", n, errorsLogged, own.logs.String())
			}
		})
	}
	b.wantLeft(lim, "handler", 9)
}

// answersHandles passes on Permits and Reservations instead of Results: of one key and of several keys, admitted, denied,
// and nil after an error.
func answersHandles(b *testbed) {
	for name, ask := range map[string]func(ctx context.Context, lim, other *core.Limiter) (core.Decision, error){
		"Acquire": func(ctx context.Context, lim, _ *core.Limiter) (core.Decision, error) {
			return lim.Acquire(ctx, "handler", 1)
		},
		"Reserve": func(ctx context.Context, lim, _ *core.Limiter) (core.Decision, error) {
			return lim.Reserve(ctx, "handler", 1)
		},
		"ReserveWait": func(ctx context.Context, lim, _ *core.Limiter) (core.Decision, error) {
			return lim.ReserveWait(ctx, "handler", 1)
		},
		"AcquireAll": func(ctx context.Context, lim, other *core.Limiter) (core.Decision, error) {
			return core.AcquireAll(ctx, 1, lim.On("handler"), other.On("handler"))
		},
		"ReserveAll": func(ctx context.Context, lim, other *core.Limiter) (core.Decision, error) {
			return core.ReserveAll(ctx, 1, lim.On("handler"), other.On("handler"))
		},
	} {
		b.each(name, func(b *testbed) {
			lim, other := b.limiter(core.FixedWindow(core.PerMinute(1))), b.named("other", core.FixedWindow(core.PerMinute(9)))
			s := b.answering(Answers{}, func(ctx context.Context) (core.Decision, error) { return ask(ctx, lim, other) })
			ans := s.get("/a")
			ans.wantServed()
			ans.wantHeaders("1", "0", "1800000073", "")
			if name != "ReserveWait" { // which waits instead of being denied
				ans = s.get("/a")
				if ans.status != http.StatusTooManyRequests || ans.body == "served" {
					b.Errorf("got status %d and body %q, want 429", ans.status, ans.body)
				}
				ans.wantHeader("X-RateLimit-Remaining", "0")
			}
			b.redis.SetError("LOADING secret detail")
			ans = s.get("/a")
			if ans.status != http.StatusServiceUnavailable || ans.body == "served" { // the handle is nil
				b.Errorf("got status %d and body %q, want 503", ans.status, ans.body)
			}
			ans.wantHeaders("", "", "", "1")
		})
	}
}

// answersNoDecision passes on neither a decision nor an error: the request is not served, and the mistake is logged.
func answersNoDecision(b *testbed) {
	for name, nothing := range map[string]core.Decision{
		"nil": nil, "Result": core.Result{}, "Permit": (*core.Permit)(nil), "a new Permit": new(core.Permit),
		"Reservation": (*core.Reservation)(nil), "a new Reservation": new(core.Reservation),
	} {
		b.each(name, func(b *testbed) {
			s := b.answering(Answers{}, func(context.Context) (core.Decision, error) { return nothing, nil })
			for range 2 {
				ans := s.get("/a")
				if ans.status != http.StatusInternalServerError || ans.body == "served" {
					b.Errorf("got status %d and body %q, want 500", ans.status, ans.body)
				}
				ans.wantNoHeaders()
			}
			if n := b.logs.Count("neither a decision nor an error"); n != 1 {
				b.Errorf("%d lines were logged, want 1: %s", n, b.logs.String())
			}
		})
	}
}

// answersTightest calls two limiters in one handler, in both orders: clients and the application see the tighter decision,
// once.
func answersTightest(b *testbed) {
	tight, loose := b.named("tight", core.FixedWindow(core.PerMinute(2))), b.named("loose", core.FixedWindow(core.PerMinute(9)))
	for _, asks := range [][]Ask{{charging(tight, 1), charging(loose, 1)}, {charging(loose, 1), charging(tight, 1)}} {
		b.redis.FlushAll()
		s := b.serve(App{Routes: []Route{{Path: "/a", Handler: Handler{Do: ShowResult, Asks: asks, Answers: Answers{
			Options: []guard.AnswerOption{guard.Headers(guard.XRateLimit | guard.IETF)},
		}}}}})
		ans := s.get("/a")
		ans.want(http.StatusOK, "fixed-1m allowed=true limit=2 remaining=1 delay=0s")
		ans.wantHeaders("2", "1", "1800000073", "")
		ans.wantHeader("RateLimit", `"tight";r=1;t=60`)
		s.get("/a")
		ans = s.get("/a")
		if ans.status != http.StatusTooManyRequests {
			b.Errorf("got status %d, want 429", ans.status)
		}
		ans.wantHeaders("2", "0", "1800000073", "60")
	}
}

// answersStacked calls a limiter in a handler behind a middleware with a tighter limit, and behind one with a looser limit.
// A denial is always shown.
func answersStacked(b *testbed) {
	for _, step := range []struct {
		outer, inner     int64
		limit, remaining string
	}{{2, 9, "2", "1"}, {9, 2, "2", "1"}} {
		b.redis.FlushAll()
		outer, inner := b.namedFixed("outer", step.outer), b.named("inner", core.FixedWindow(core.PerMinute(step.inner)))
		s := b.behind(outer, Route{Path: "/a", Handler: Handler{Do: ShowResult, Asks: []Ask{charging(inner, 1)}}})
		ans := s.get("/a")
		ans.want(http.StatusOK, "fixed-1m allowed=true limit="+step.limit+" remaining="+step.remaining+" delay=0s")
		ans.wantHeaders(step.limit, step.remaining, "1800000073", "")
	}
	outer, inner := b.namedFixed("outer", 1), b.named("inner", core.FixedWindow(core.PerMinute(3)))
	b.redis.FlushAll()
	ans := b.behind(outer, Route{Path: "/a", Handler: Handler{Asks: []Ask{charging(inner, 4)}}}).get("/a")
	ans.wantDenied()
	ans.wantHeaders("3", "3", "1800000013", "") // no Retry-After, because the cost can never be admitted
}

// answersAtOnce calls a queue that admits with a Delay of an hour: the handler goes on at once, and learns the Delay.
func answersAtOnce(b *testbed) {
	queue := b.limiter(core.LeakyBucket(core.PerHour(1), core.Burst(3)))
	s := b.serve(App{Routes: []Route{{Path: "/a", Handler: Handler{Do: ShowResult, Asks: []Ask{charging(queue, 1)}}}}})
	s.get("/a").want(http.StatusOK, "leaky-1h allowed=true limit=3 remaining=2 delay=0s")
	s.get("/a").want(http.StatusOK, "leaky-1h allowed=true limit=3 remaining=1 delay=1h0m0s")
}

// answersWithJitter denies a crowd at the same instant: the responses ask the clients to come back at different times.
func answersWithJitter(b *testbed) {
	lim := b.limiter(core.FixedWindow(core.PerMinute(1)))
	s := b.answering(Answers{Options: []guard.AnswerOption{guard.RetryJitter(0.2)}}, charging(lim, 1))
	s.get("/a").wantServed()
	delays := map[int]bool{}
	for range 13 * crowd {
		seconds, err := strconv.Atoi(s.get("/a").header.Get("Retry-After"))
		if err != nil {
			b.Fatal(err)
		}
		delays[seconds] = true
	}
	for seconds := 60; seconds <= 72; seconds++ {
		if !delays[seconds] {
			b.Errorf("no response has a Retry-After of %d, want some", seconds)
		}
	}
	if len(delays) != 13 {
		b.Errorf("the values of Retry-After are %v, want 60 to 72", delays)
	}
}

// answersFailOpen calls limiters with FailOpen during an outage: requests are served, without headers.
func answersFailOpen(b *testbed) {
	lim := core.MustNew(b.client, "api", core.FixedWindow(core.PerMinute(1)), core.FailOpen())
	b.redis.SetError("LOADING secret detail")
	for _, ask := range []Ask{charging(lim, 1), func(ctx context.Context) (core.Decision, error) { return lim.Reserve(ctx, "handler", 1) }} {
		s := b.answering(Answers{}, ask)
		for range 3 {
			ans := s.get("/a")
			ans.wantServed()
			ans.wantNoHeaders()
		}
	}
}

// answersAreCharged does some work, and then calls a limiter that cannot decide. An outer middleware must charge the work
// of the handler, because a client could otherwise avoid the charge by causing such an error, for example by leaving.
func answersAreCharged(b *testbed) {
	for name, c := range map[string]struct {
		outer guard.Option
		left  int64
	}{
		"CountIf":   {guard.CountIf(func(status int) bool { return status == http.StatusServiceUnavailable }), 8},
		"CostAfter": {guard.CostAfter(), 4},
	} {
		b.each(name, func(b *testbed) {
			outer, err := core.NewMemory("outer", core.FixedWindow(core.PerHour(9)))
			if err != nil {
				b.Fatal(err)
			}
			s := b.serve(App{Use: []Mount{Limit{Limiter: outer, Key: keyfunc.IP(), Options: []guard.Option{c.outer}}}, Routes: []Route{
				{Path: "/a", Handler: Handler{Costs: []int64{5}, Asks: []Ask{charging(b.limiter(core.FixedWindow(core.PerMinute(9))), 1)}}},
			}})
			b.redis.SetError("LOADING")
			s.get("/a").wantStatus(http.StatusServiceUnavailable)
			s.close()
			b.untilLeft(outer, ipKey, c.left)
		})
	}
}

// answersHaveTheirLength sets the length of the body of the usual response: another body must not be cut to that length.
func answersHaveTheirLength(b *testbed) {
	lim := b.limiter(core.FixedWindow(core.PerMinute(1)))
	s := b.serve(App{Renders: true, Use: []Mount{AddHeader{"Content-Length", "6"}}, Routes: []Route{
		{Path: "/middleware", Use: []Mount{Limit{Limiter: lim, Key: keyfunc.IP(), Options: []guard.Option{estimate(2)}}}},
		{Path: "/handler", Handler: Handler{Asks: []Ask{charging(lim, 2)}}},
	}})
	for _, path := range []string{"/middleware", "/handler"} {
		ans := s.get(path)
		if ans.status != http.StatusTooManyRequests || len(ans.body) <= 6 {
			b.Errorf("%s: got status %d and body %q, want 429 and a body that is not cut to 6 bytes", path, ans.status, ans.body)
		}
	}
}

// answererGone calls a limiter after the client has left. The status is 499, which only logs of requests show.
func answererGone(b *testbed) {
	lim := b.limiter(core.FixedWindow(core.PerMinute(9)))
	asking, statuses := make(chan struct{}), make(chan int, 1)
	s := b.serve(App{
		Use: []Mount{Log{func(status int) { statuses <- status }}},
		Routes: []Route{{Path: "/a", Handler: Handler{Asks: []Ask{func(ctx context.Context) (core.Decision, error) {
			close(asking)
			<-ctx.Done()
			return lim.Allow(ctx, "handler")
		}}}}},
	})
	leave, done := s.start("/a")
	<-asking
	leave()
	<-done
	select {
	case status := <-statuses:
		if status != 499 {
			b.Errorf("got status %d, want 499", status)
		}
	case <-time.After(testTimeout):
		b.Error("the handler has not returned within 30s, want it to return when the client leaves")
	}
	s.close()
	b.wantLeft(lim, "handler", 9)
	if n := b.logs.lines(""); n != 0 {
		b.Errorf("%d lines were logged, want 0: %s", n, b.logs.String())
	}
}

// answererLate calls a limiter after the handler has begun to write. The response does not change, whatever the decision
// is, and this is logged once. The handler still learns whether it must return.
func answererLate(b *testbed) {
	for name, http2 := range map[string]bool{"HTTP/1": false, "HTTP/2": true} {
		b.each(name, func(b *testbed) {
			if http2 {
				b.need(HTTP2)
			}
			lim := b.limiter(core.FixedWindow(core.PerMinute(1)))
			late := Handler{Do: AskLate, Body: "written", Asks: []Ask{charging(lim, 1)}}
			s := b.serve(App{Routes: []Route{{Path: "/a", Handler: late}}, Renders: true, HTTP2: http2})
			for i, body := range []string{"writtenwritten", "written", "written", "written"} { // admitted, denied twice, and during an outage
				if i == 3 {
					b.redis.SetError("LOADING secret detail")
				}
				ans := s.get("/a")
				ans.want(http.StatusOK, body)
				ans.wantNoHeaders()
			}
			if n := b.logs.Count("when the response had begun"); n != 1 {
				b.Errorf("%d lines were logged, want 1: %s", n, b.logs.String())
			}
		})
	}
}
