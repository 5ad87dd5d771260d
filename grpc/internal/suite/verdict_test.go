package suite_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	grpclimit "github.com/redislimit/redislimit/grpc"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/keyfunc"
	httplimit "github.com/redislimit/redislimit/nethttp"
)

// details returns a description of the details in the status of an answer.
func (a answer) details() string {
	a.Helper()
	var all []string
	for _, detail := range a.status.Details() {
		switch d := detail.(type) {
		case *errdetails.RetryInfo:
			all = append(all, "retry in "+d.GetRetryDelay().AsDuration().String())
		case *errdetails.QuotaFailure:
			for _, v := range d.GetViolations() {
				all = append(all, v.GetSubject()+": "+v.GetDescription())
			}
		default:
			a.Errorf("got the detail %v, want a RetryInfo or a QuotaFailure", detail)
		}
	}
	return strings.Join(all, "; ")
}

func (a answer) wantDetails(want string) {
	a.Helper()
	if got := a.details(); got != want {
		a.Errorf("got the details %q, want %q", got, want)
	}
}

// TestAllowAndDeny checks the codes, the metadata and the details of calls that are admitted and denied.
func TestAllowAndDeny(t *testing.T) {
	each(t, func(b *testbed) {
		b.serve = func(_ context.Context, send func()) error { send(); return nil }
		b.behind(by(b.limiter("api", core.TokenBucket(core.PerMinute(3)))))
		for i, remaining := range []string{"2", "1", "0"} {
			a := b.call()
			a.want(codes.OK)
			a.wantHeaders("3", remaining, []string{"1800000033", "1800000053", "1800000073"}[i], "")
		}
		a := b.call()
		a.want(codes.ResourceExhausted)
		a.wantHeaders("3", "0", "1800000073", "20")
		a.wantDetails(`api: limit "token-1m" of 3 exceeded; retry in 20s`)
		if got := a.status.Message(); got != "too many requests" {
			b.Errorf("got the message %q, want \"too many requests\"", got)
		}
		b.redis.SetTime(start.Add(19_999_999 * time.Microsecond))
		a = b.call()
		a.want(codes.ResourceExhausted)
		a.wantHeaders("3", "0", "1800000073", "1") // whole seconds
		a.wantDetails(`api: limit "token-1m" of 3 exceeded; retry in 1ms`)
		b.redis.SetTime(start.Add(20 * time.Second))
		b.call().want(codes.OK)
	})
}

// TestDetails checks the details of denials with other options and limits: those that are never admitted, by several limits, and by a ban.
func TestDetails(t *testing.T) {
	cost := guard.Cost(func(keyfunc.Request) int64 { return 2 })
	for name, c := range map[string]struct {
		limits           []core.Option
		opts             []guard.Option
		details, retryMs string
	}{
		"Never":           {[]core.Option{core.FixedWindow(core.PerMinute(1))}, []guard.Option{cost}, `api: limit "fixed-1m" of 1 exceeded`, ""},
		"NeverBounded":    {[]core.Option{core.FixedWindow(core.PerMinute(1))}, []guard.Option{cost, guard.MaxRetryAfter(time.Minute)}, `api: limit "fixed-1m" of 1 exceeded`, ""},
		"NoHeaders":       {[]core.Option{core.FixedWindow(core.PerMinute(1))}, []guard.Option{guard.NoHeaders()}, "", ""},
		"HeadersOnDenial": {[]core.Option{core.FixedWindow(core.PerMinute(1))}, []guard.Option{guard.HeadersOnDenial()}, `api: limit "fixed-1m" of 1 exceeded; retry in 1m0s`, ""},
		"Bounded": {[]core.Option{core.FixedWindow(core.PerMinute(1))}, []guard.Option{guard.MaxRetryAfter(10 * time.Second), guard.RetryAfterMs()},
			`api: limit "fixed-1m" of 1 exceeded; retry in 10s`, "10000"},
		"Several": {[]core.Option{core.FixedWindow(core.PerMinute(1)), core.TokenBucket(core.PerHour(9)), core.FixedWindow(core.PerHour(1))}, nil,
			`api: limit "fixed-1m" of 1 exceeded; api: limit "fixed-1h" of 1 exceeded; retry in 1h0m0s`, ""},
		"Banned": {[]core.Option{core.FixedWindow(core.PerMinute(1)), core.Ban(time.Hour)}, nil, "api: banned; retry in 1h0m0s", ""},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(b *testbed) {
				b.behind(by(b.limiter("api", c.limits...), c.opts...))
				b.call()
				if name == "Banned" {
					b.call()
				}
				a := b.call()
				a.want(codes.ResourceExhausted)
				a.wantDetails(c.details)
				if got := strings.Join(a.trailer.Get("retry-after-ms"), ""); got != c.retryMs {
					b.Errorf("retry-after-ms is %q, want %q", got, c.retryMs)
				}
				if name == "NoHeaders" {
					a.wantHeaders("", "", "", "")
				}
			})
		})
	}
}

// TestJitter checks that an answer uses one random wait: RetryInfo and the metadata must say the same.
func TestJitter(t *testing.T) {
	each(t, func(b *testbed) {
		b.behind(by(b.fixed(1), guard.RetryJitter(0.2), guard.RetryAfterMs()))
		b.call()
		drawn := map[string]bool{}
		for range 20 {
			a := b.call()
			ms := strings.Join(a.trailer.Get("retry-after-ms"), "")
			wait, err := time.ParseDuration(ms + "ms")
			if err != nil || wait < time.Minute || wait > 72*time.Second {
				b.Errorf("got retry-after-ms %q, want 1m to 72s", ms)
			}
			a.wantDetails(fmt.Sprintf(`api: limit "fixed-1m" of 1 exceeded; retry in %v`, wait))
			drawn[ms] = true
		}
		if len(drawn) < 2 {
			b.Error("all clients got the same wait, want different ones")
		}
	})
}

// TestIETF checks the metadata with the names of the IETF's draft.
func TestIETF(t *testing.T) {
	each(t, func(b *testbed) {
		b.behind(by(b.fixed(1), guard.Headers(guard.IETF)))
		a := b.call()
		a.wantHeaders("", "", "", "")
		if got := a.header.Get("ratelimit"); len(got) != 1 || got[0] != `"api";r=0;t=60` || len(a.header.Get("ratelimit-policy")) != 1 {
			b.Errorf("got the header %v, want ratelimit and ratelimit-policy", a.header)
		}
	})
}

// wraps returns interceptors that wrap errors. gRPC then sends the text of the wrapped error.
func wraps() []grpc.ServerOption {
	return around(func(ctx context.Context, next func(context.Context) error) error {
		return fmt.Errorf("wrapped: %w", next(ctx))
	})
}

// TestFailures checks calls on which there is no decision: the client must not learn the reason.
func TestFailures(t *testing.T) {
	secret := func(keyfunc.Request) (string, error) { return "", errors.New("secret detail") }
	empty := func(keyfunc.Request) (string, error) { return "", nil }
	for name, key := range map[string]keyfunc.Func{"Error": secret, "EmptyKey": empty} {
		t.Run(name, func(t *testing.T) {
			each(t, func(b *testbed) {
				b.serve = func(context.Context, func()) error { b.Error("the handler ran, want the call refused"); return nil }
				lim := b.fixed(1)
				b.start(wraps(), mount{lim, key, nil})
				a := b.call()
				a.want(codes.Internal)
				a.wantHeaders("", "", "", "")
				if a.details() != "" || strings.Contains(a.status.String(), "secret") {
					b.Errorf("got the status %v, want no details and no text of the error", a.status)
				}
				if b.logs.Count("level=ERROR") != 1 {
					b.Errorf("got the log %s, want one error", b.logs.String())
				}
				wantLeft(t, lim, peerKey, 1)
			})
		})
	}
}

// TestOutage checks a call while Redis returns errors, and calls after that.
func TestOutage(t *testing.T) {
	each(t, func(b *testbed) {
		b.behind(by(b.fixed(2)))
		b.call().want(codes.OK)
		b.redis.SetError("LOADING secret detail")
		a := b.call()
		a.want(codes.Unavailable)
		a.wantHeaders("", "", "", "1")
		a.wantDetails("retry in 1s")
		if strings.Contains(a.status.String(), "secret") {
			b.Errorf("got the status %v, want no text of the error", a.status)
		}
		b.redis.SetError("")
		check.Eventually(t, "calls are served again", func() bool { return b.call().code == codes.OK })
		b.call().want(codes.ResourceExhausted)
	})
}

// TestOnDenied checks that OnDenied and OnError make the errors of denials and failures, and that OnDenied may return nil for the usual error.
func TestOnDenied(t *testing.T) {
	each(t, func(b *testbed) {
		failing := false
		key := func(keyfunc.Request) (string, error) {
			if failing {
				return "", errors.New("secret detail")
			}
			return "a", nil
		}
		denied := grpclimit.OnDenied(func(ctx context.Context, err error) error {
			var denied *guard.DeniedError
			res, ok := grpclimit.Result(ctx)
			if !errors.As(err, &denied) || !ok || res.Allowed || denied.Result.Limit != 1 || status.Code(err) != codes.ResourceExhausted {
				b.Errorf("OnDenied got the error %v and the Result %v, want a denial by a limit of 1", err, res)
			}
			if len(metadata.ValueFromIncomingContext(ctx, "want")) > 0 {
				return nil
			}
			return status.Errorf(codes.FailedPrecondition, "not more than %d", res.Limit)
		})
		failed := grpclimit.OnError(func(_ context.Context, err error) error {
			if errors.As(err, new(*guard.DeniedError)) || status.Code(err) != codes.Internal {
				b.Errorf("OnError got the error %v, want INTERNAL and no denial", err)
			}
			return fmt.Errorf("mine: %w", status.Error(codes.DataLoss, "lost"))
		})
		b.behind(mount{b.fixed(1), key, []guard.Option{denied, failed}})
		b.call().want(codes.OK)
		a := b.call()
		a.want(codes.FailedPrecondition)
		a.wantHeaders("1", "0", "1800000073", "60")
		if got := a.status.Message(); got != "not more than 1" {
			b.Errorf("got the message %q, want \"not more than 1\"", got)
		}
		a = b.call("want", "default")
		a.want(codes.ResourceExhausted)
		a.wantDetails(`api: limit "fixed-1m" of 1 exceeded; retry in 1m0s`)
		failing = true
		b.call().want(codes.DataLoss)
	})
}

// TestWrongOptions checks that mistakes of a program panic when it starts.
func TestWrongOptions(t *testing.T) {
	lim := core.MustNewMemory("api", core.FixedWindow(core.PerMinute(1)))
	always := func(codes.Code) bool { return true }
	for name, c := range map[string]struct {
		make func()
		want string
	}{
		"NoLimiter": {func() { grpclimit.Unary(nil, keyfunc.IP()) }, "the limiter is nil"},
		"NoKey":     {func() { grpclimit.Stream(lim, nil) }, "the key function is nil"},
		"NoCountIf": {func() { grpclimit.CountIf(nil) }, "CountIf(nil)"},
		"Twice": {func() {
			grpclimit.Unary(lim, keyfunc.IP(), grpclimit.CountIf(always), guard.CountIf(func(int) bool { return true }))
		}, "CountIf and CountIf"},
		"OfHTTP":    {func() { httplimit.Middleware(lim, keyfunc.IP(), grpclimit.CountIf(always)) }, "use guard.CountIf"},
		"NoHandler": {func() { grpclimit.OnDenied(nil) }, "OnDenied(nil)"},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, c.want) {
					t.Errorf("got the panic %q, want one that contains %q", got, c.want)
				}
			}()
			c.make()
		})
	}
}
