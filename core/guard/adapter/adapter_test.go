package adapter_test

import (
	"context"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/core/guard/adapter"
	"github.com/redislimit/redislimit/keyfunc"
)

// TestPanics checks the mistakes that would leave a route without a limit, or have no effect: each of them panics.
func TestPanics(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	lim := core.MustNew(client, "api", core.TokenBucket(core.PerMinute(1)))
	queue := core.MustNew(client, "queue", core.LeakyBucket(core.PerMinute(1)))
	slots := core.MustNew(client, "slots", core.InFlight(1))
	const framework, other = adapter.Adapter[*http.Request, http.Handler]("httplimit"), adapter.Adapter[any, func()]("otherlimit")
	mount := func(options ...guard.Option) { framework.New(lim, keyfunc.IP(), options...) }
	handler := http.NotFoundHandler()
	chosen := guard.LimiterFor(func(keyfunc.Request) (*core.Limiter, error) { return lim, nil })
	framework.New(slots, keyfunc.IP(), guard.CostAfter(), chosen)
	framework.New(slots, keyfunc.IP(), guard.CostAfter(), guard.AlsoLimit(lim, keyfunc.IP()))
	framework.New(queue, keyfunc.IP(), guard.CountIf(func(int) bool { return true }))
	mount(guard.HeaderPrefix("a-"), guard.Headers(guard.IETF|guard.XRateLimit), guard.ResetInSeconds(), guard.HeadersOnDenial())
	mount(guard.HeaderPrefix(strings.Repeat("x", 63) + "-"))
	for want, f := range map[string]func(){
		"limiter is nil":      func() { framework.New(nil, keyfunc.IP()) },
		"key function is nil": func() { framework.New(lim, nil) },
		"nil Option":          func() { framework.New(lim, keyfunc.IP(), nil) },
		"Skip(nil)":           func() { guard.Skip(nil) },
		"Cost(nil)":           func() { guard.Cost(nil) },
		"LimiterFor(nil)":     func() { guard.LimiterFor(nil) },
		"Fallback(nil)":       func() { guard.Fallback(nil) },
		"CountIf(nil)":        func() { guard.CountIf(nil) },
		"Headers(0)":          func() { guard.Headers(0) },
		"Headers(4)":          func() { guard.Headers(4) },
		"RetryJitter(0): allowed is above 0 to 1":                          func() { guard.RetryJitter(0) },
		"RetryJitter(20)":                                                  func() { guard.RetryJitter(20) },
		"RetryJitter(NaN)":                                                 func() { guard.RetryJitter(math.NaN()) },
		"MaxRetryAfter(0s): allowed are whole seconds from 1s":             func() { guard.MaxRetryAfter(0) },
		"MaxRetryAfter(1.5s)":                                              func() { guard.MaxRetryAfter(1500 * time.Millisecond) },
		`HeaderPrefix("RateLimit"): allowed are 2 to 64 letters`:           func() { guard.HeaderPrefix("RateLimit") },
		`HeaderPrefix("")`:                                                 func() { guard.HeaderPrefix("") },
		`HeaderPrefix("-")`:                                                func() { guard.HeaderPrefix("-") },
		`HeaderPrefix("--")`:                                               func() { guard.HeaderPrefix("--") },
		`HeaderPrefix("X_-")`:                                              func() { guard.HeaderPrefix("X_-") },
		`HeaderPrefix("X-\n")`:                                             func() { guard.HeaderPrefix("X-\n") },
		`HeaderPrefix("X: 1-")`:                                            func() { guard.HeaderPrefix("X: 1-") },
		`HeaderPrefix("Grpc-Limit-"): allowed are`:                         func() { guard.HeaderPrefix("Grpc-Limit-") },
		`HeaderPrefix("` + strings.Repeat("x", 64):                         func() { guard.HeaderPrefix(strings.Repeat("x", 64) + "-") },
		"guard: NoHeaders and HeaderPrefix: choose one":                    func() { mount(guard.NoHeaders(), guard.HeaderPrefix("X-")) },
		"guard: HeaderPrefix and HeaderPrefix: give it":                    func() { mount(guard.HeaderPrefix("X-"), guard.HeaderPrefix("Y-")) },
		"HeaderPrefix: it changes only the headers of XRateLimit, which":   func() { framework.NewAnswerer(guard.HeaderPrefix("X-"), guard.Headers(guard.IETF)) },
		"guard: HeaderPrefix: it changes only the headers of XRateLimit, ": func() { mount(guard.HeaderPrefix("X-"), guard.Headers(guard.IETF)) },
		"OnDenied(nil)":                                                    func() { other.OnDenied((func())(nil)) },
		"OnError(nil)":                                                     func() { framework.OnError(nil) },
		"Key(nil)":                                                         func() { framework.Key(nil) },
		"OnDenied has a func":                                              func() { framework.New(lim, keyfunc.IP(), other.OnDenied(func() {})) },
		"otherlimit: Key wants a func(), but the requests of this middleware are adapter_test.callRequest over *adapter_test.call": func() {
			_, _ = adapter.Adapter[func(), func()]("otherlimit").Key(func(func()) (string, error) { return "called", nil })(callRequest{&call{}, nil})
		},
		"Key(nil): want a function that takes": func() { framework.ContextKey(nil) },
		"otherlimit: Key wants a func()": func() {
			_, _ = adapter.Adapter[func(), func()]("otherlimit").ContextKey(func(context.Context, func()) (string, error) { return "called", nil })(callRequest{&call{}, nil})
		},
		"CountIf(nil): want a function":                               func() { framework.CountIf(nil) },
		"httplimit: CountIf belongs to otherlimit: use guard.CountIf": func() { mount(other.CountIf(func(int) bool { return true })) },
		"guard: CountIf and CountIf: give it once": func() {
			mount(framework.CountIf(func(int) bool { return true }), guard.CountIf(func(int) bool { return true }))
		},
		"httplimit: OnError has a func(), want a http.Handler: use httplimit.OnError": func() {
			framework.New(lim, keyfunc.IP(), other.OnError(func() {}))
		},
		"guard: OnDenied and OnDenied: give it once":           func() { mount(framework.OnDenied(handler), framework.OnDenied(handler)) },
		"guard: OnError and OnError: give it once":             func() { mount(framework.OnError(handler), framework.OnError(handler)) },
		"guard: MaxRetryAfter and MaxRetryAfter: give it once": func() { mount(guard.MaxRetryAfter(1e9), guard.MaxRetryAfter(2e9)) },
		"guard: NoHeaders and RetryJitter: choose one":         func() { mount(guard.NoHeaders(), guard.RetryJitter(0.2)) },
		"guard: AlsoLimit and WaitUpTo: choose one":            func() { mount(guard.AlsoLimit(lim, keyfunc.Global()), guard.WaitUpTo(time.Second)) },
		"guard: NoHeaders and MaxRetryAfter: choose one":       func() { mount(guard.MaxRetryAfter(1e9), guard.NoHeaders()) },
		"guard: NoHeaders and RetryAfterMs: choose one":        func() { mount(guard.NoHeaders(), guard.RetryAfterMs()) },
		"guard: NoHeaders and Headers: choose one":             func() { mount(guard.NoHeaders(), guard.Headers(guard.IETF)) },
		"guard: NoHeaders and HeadersOnDenial: choose one":     func() { mount(guard.HeadersOnDenial(), guard.NoHeaders()) },
		"guard: NoHeaders and ResetInSeconds: choose one":      func() { mount(guard.ResetInSeconds(), guard.NoHeaders()) },
		"guard: NoHeaders and ExposeHeaders: choose one":       func() { mount(guard.NoHeaders(), guard.ExposeHeaders()) },
		"guard: AlsoLimit with CountIf: give it to the middleware": func() {
			mount(guard.AlsoLimit(lim, keyfunc.IP(), guard.CountIf(func(int) bool { return true })))
		},
		"guard: AlsoLimit with AlsoLimit: give it to the middleware":   func() { mount(guard.AlsoLimit(lim, keyfunc.IP(), guard.AlsoLimit(lim, keyfunc.IP()))) },
		`guard: AlsoLimit: limiter "queue" has a LeakyBucket`:          func() { mount(guard.AlsoLimit(queue, keyfunc.IP())) },
		`AlsoLimit: limiter "queue" has a LeakyBucket: a place in its`: func() { framework.New(queue, keyfunc.IP(), guard.AlsoLimit(lim, keyfunc.IP())) },
		"guard: the limiter is nil":                                    func() { guard.AlsoLimit(nil, keyfunc.IP()) },
		"guard: the key function is nil":                               func() { guard.AlsoLimit(lim, nil) },
		"guard: a nil Option":                                          func() { guard.AlsoLimit(lim, keyfunc.IP(), nil) },
		`guard: CostAfter: no limit of limiter "queue"`:                func() { framework.New(queue, keyfunc.IP(), guard.CostAfter()) },
		`guard: CostAfter: no limit of limiter "slots"`:                func() { framework.New(slots, keyfunc.IP(), guard.CostAfter()) },
		`guard: CountIf: limiter "slots" has InFlight alone`: func() {
			framework.New(slots, keyfunc.IP(), guard.CountIf(func(int) bool { return true }))
		},
		"WaitUpTo(0s): allowed is 1ms to 1m0s":   func() { guard.WaitUpTo(0) },
		"WaitUpTo(1m1s)":                         func() { guard.WaitUpTo(61 * time.Second) },
		"MaxWaiting(0): allowed is 1 to 1000000": func() { guard.MaxWaiting(0) },
		"MaxWaiting(1000001)":                    func() { guard.MaxWaiting(1_000_001) },
		"MaxWaiting without WaitUpTo: no request waits: add WaitUpTo, or leave MaxWaiting out": func() { mount(guard.MaxWaiting(1)) },
		`WaitUpTo: limiter "queue" has a LeakyBucket`:                                          func() { framework.New(queue, keyfunc.IP(), guard.WaitUpTo(1e9)) },
		"guard: a nil Option: leave it out":                                                    func() { framework.NewAnswerer(nil) },
		"httplimit: OnDenied has a func(), want a http.Handler: use httplimit.OnDenied": func() {
			framework.NewAnswerer(other.OnDenied(func() {}))
		},
		"guard: Headers and Headers: give it once":                                        func() { framework.NewAnswerer(guard.Headers(guard.IETF), guard.Headers(guard.IETF)) },
		"NoHeaders and RetryJitter: choose one":                                           func() { framework.NewAnswerer(guard.RetryJitter(0.2), guard.NoHeaders()) },
		"ResetInSeconds: it changes only the headers of XRateLimit, which":                func() { framework.NewAnswerer(guard.ResetInSeconds(), guard.Headers(guard.IETF)) },
		"guard: ResetInSeconds: it changes only the headers of XRateLimit, which Headers": func() { mount(guard.ResetInSeconds(), guard.Headers(guard.IETF)) },
	} {
		func() {
			defer func() {
				if got, _ := recover().(string); !strings.Contains(got, want) {
					t.Errorf("got the panic %q, want one that contains %q", got, want)
				}
			}()
			f()
		}()
	}
}

// TestAnswerOptions checks which options an Answerer accepts. The compiler rejects all others.
func TestAnswerOptions(t *testing.T) {
	t.Parallel()
	const framework = adapter.Adapter[*http.Request, http.Handler]("httplimit")
	lim := core.MustNewMemory("api", core.FixedWindow(core.PerHour(1)))
	is := func(option guard.Option) bool { _, ok := option.(guard.AnswerOption); return ok }
	for name, option := range map[string]guard.Option{
		"Headers": guard.Headers(guard.IETF), "NoHeaders": guard.NoHeaders(), "HeadersOnDenial": guard.HeadersOnDenial(), "ResetInSeconds": guard.ResetInSeconds(),
		"RetryJitter": guard.RetryJitter(1), "MaxRetryAfter": guard.MaxRetryAfter(time.Second), "RetryAfterMs": guard.RetryAfterMs(),
		"ExposeHeaders": guard.ExposeHeaders(),
		"OnDenied":      framework.OnDenied(http.NotFoundHandler()), "OnError": framework.OnError(http.NotFoundHandler()),
	} {
		if !is(option) {
			t.Errorf("%s is no AnswerOption, want one", name)
		}
	}
	for name, option := range map[string]guard.Option{
		"Skip": guard.Skip(func(keyfunc.Request) bool { return true }), "Cost": guard.Cost(func(keyfunc.Request) int64 { return 0 }),
		"Fallback": guard.Fallback(keyfunc.IP()), "LimiterFor": guard.LimiterFor(func(keyfunc.Request) (*core.Limiter, error) { return lim, nil }),
		"CountIf": guard.CountIf(func(int) bool { return true }), "CountIf of an adapter": framework.CountIf(func(int) bool { return true }),
		"CostAfter": guard.CostAfter(), "DryRun": guard.DryRun(), "WaitUpTo": guard.WaitUpTo(time.Second), "MaxWaiting": guard.MaxWaiting(1),
		"AlsoLimit": guard.AlsoLimit(lim, keyfunc.IP()),
	} {
		if is(option) {
			t.Errorf("%s is an AnswerOption, want none: it would have no effect", name)
		}
	}
}

// TestFinishWithoutStatus checks an adapter that does not know the status, as after a panic: the cost is charged.
func TestFinishWithoutStatus(t *testing.T) {
	t.Parallel()
	lim := core.MustNewMemory("calls", core.FixedWindow(core.PerHour(2)))
	serve := func(_ context.Context, c *call) { c.status = 0 }
	counts := guard.CountIf(func(int) bool { return true })
	middleware(lim, keyfunc.IP(), serve, counts)(t.Context(), &call{sender: "203.0.113.7:1", reply: map[string]string{}})
	if res, err := lim.Peek(t.Context(), "ip:203.0.113.7"); err != nil || res.Remaining != 1 {
		t.Errorf("got %+v, %v; want 1 unit left", res, err)
	}
}
