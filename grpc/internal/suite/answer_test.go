package suite_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	grpclimit "github.com/redislimit/redislimit/grpc"
)

// answers starts a server whose handler calls each of the limiters itself, and answers by the Answerer limit.
func (b *testbed) answers(options []grpc.ServerOption, limit *grpclimit.Answerer, mounts []mount, limiters ...*core.Limiter) {
	b.Helper()
	b.serve = func(ctx context.Context, send func()) error {
		for _, lim := range limiters {
			res, err := lim.Allow(ctx, "k")
			if err := limit.Answer(ctx, res, err); err != nil {
				return err
			}
		}
		send()
		return nil
	}
	b.start(options, mounts...)
}

// sending returns the interceptors of an Answerer, which send its headers.
func sending(limit *grpclimit.Answerer) []grpc.ServerOption {
	return []grpc.ServerOption{grpc.ChainUnaryInterceptor(limit.Unary()), grpc.ChainStreamInterceptor(limit.Stream())}
}

// TestAnswererAsInterceptor checks that a client gets the same from a limiting interceptor and from a handler that calls the limiter itself.
func TestAnswererAsInterceptor(t *testing.T) {
	option := guard.Headers(guard.XRateLimit | guard.IETF)
	limits := []core.Option{core.FixedWindow(core.PerMinute(2)), core.TokenBucket(core.PerHour(3))}
	var interceptors, handlers []string
	each(t, func(b *testbed) {
		b.behind(by(b.limiter("api", limits...), option))
		interceptors = append(interceptors, b.untilOutage()...)
	})
	each(t, func(b *testbed) {
		limit := grpclimit.NewAnswerer(option)
		b.answers(sending(limit), limit, nil, b.limiter("api", limits...))
		handlers = append(handlers, b.untilOutage()...)
	})
	slices.Sort(interceptors) // each runs its tests in any order
	slices.Sort(handlers)
	if !slices.Equal(interceptors, handlers) {
		t.Errorf("with an interceptor, the client got %q\nwant the same as with a handler: %q", interceptors, handlers)
	}
}

// untilOutage makes calls that are admitted, calls that are denied, and calls during an outage. It returns what the client gets for each.
func (b *testbed) untilOutage() (all []string) {
	b.Helper()
	for call, code := range []codes.Code{codes.OK, codes.OK, codes.ResourceExhausted, codes.Unavailable} {
		if code == codes.Unavailable {
			b.redis.SetError("LOADING secret detail")
		}
		a := b.call()
		a.want(code)
		a.header.Delete("content-type")
		a.trailer.Delete("content-type")
		all = append(all, fmt.Sprintf("stream %t, call %d: %v %q %s, header %v, trailer %v",
			b.stream, call, a.code, a.status.Message(), a.details(), a.header, a.trailer))
	}
	return all
}

// TestAnswererHeaders calls two limiters in one handler: the headers must describe the tighter limit, once, and the headers of a denial must
// be in the trailer. Without an interceptor, only a denial has headers.
func TestAnswererHeaders(t *testing.T) {
	each(t, func(b *testbed) {
		limit := grpclimit.NewAnswerer()
		for name, c := range map[string]struct {
			options []grpc.ServerOption
			mounts  func() []mount
			alone   bool // whether there is no interceptor
		}{
			"its own interceptor":     {sending(limit), func() []mount { return nil }, false},
			"a limiter's interceptor": {nil, func() []mount { return []mount{by(b.limiter("outer", core.FixedWindow(core.PerMinute(90))))} }, false},
			"twice":                   {append(sending(limit), sending(limit)...), func() []mount { return nil }, false},
			"none":                    {nil, func() []mount { return nil }, true},
		} {
			for _, tightFirst := range []bool{false, true} {
				b.redis.FlushAll()
				limiters := []*core.Limiter{b.limiter("tight", core.FixedWindow(core.PerMinute(1))), b.limiter("loose", core.FixedWindow(core.PerMinute(9)))}
				if !tightFirst {
					slices.Reverse(limiters)
				}
				b.answers(c.options, limit, c.mounts(), limiters...)
				a := b.call()
				a.want(codes.OK)
				if c.alone {
					a.wantHeaders("", "", "", "")
				} else {
					a.wantHeaders("1", "0", "1800000073", "")
				}
				a = b.call()
				a.want(codes.ResourceExhausted)
				if a.wantHeaders("1", "0", "1800000073", "60"); b.Failed() {
					b.Fatal(name)
				}
			}
		}
	})
}

// TestAnswererErrors passes the errors that a call of package core may return to an Answerer, and checks the codes that a client gets.
func TestAnswererErrors(t *testing.T) {
	each(t, func(b *testbed) {
		lim := b.limiter("api", core.FixedWindow(core.PerMinute(1)))
		limit := grpclimit.NewAnswerer()
		for name, c := range map[string]struct {
			decide func(ctx context.Context) (core.Decision, error)
			code   codes.Code
		}{
			"no handle": {func(context.Context) (core.Decision, error) {
				return (*core.Reservation)(nil), fmt.Errorf("secret detail: %w", core.ErrUnavailable)
			}, codes.Unavailable},
			"an empty key":   {func(ctx context.Context) (core.Decision, error) { return lim.Allow(ctx, "") }, codes.Internal},
			"no decision":    {func(context.Context) (core.Decision, error) { return core.Result{}, nil }, codes.Internal},
			"never admitted": {func(ctx context.Context) (core.Decision, error) { return lim.WaitN(ctx, "k", 2) }, codes.ResourceExhausted},
			"a deadline of the handler's own": {func(ctx context.Context) (core.Decision, error) {
				ctx, cancel := context.WithDeadline(ctx, time.Unix(1, 0))
				defer cancel()
				return lim.Allow(ctx, "k")
			}, codes.Unavailable},
		} {
			b.serve = func(ctx context.Context, _ func()) error {
				decision, err := c.decide(ctx)
				return limit.Answer(ctx, decision, err)
			}
			b.behind()
			a := b.call()
			if a.want(c.code); a.status.Message() == "" || strings.Contains(a.status.Message(), "secret detail") {
				b.Errorf("%s: the client gets the message %q, want one without the error's text", name, a.status.Message())
			}
			b.stop()
		}
		canceled, cancel := context.WithCancel(context.Background())
		cancel()
		late, cancel := context.WithDeadline(context.Background(), time.Unix(1, 0))
		defer cancel()
		for want, ctx := range map[codes.Code]context.Context{codes.Canceled: canceled, codes.DeadlineExceeded: late} {
			res, err := lim.Allow(ctx, "k")
			if got := status.Code(limit.Answer(ctx, res, err)); got != want {
				b.Errorf("a call whose context has ended: got %v, want %v", got, want)
			}
		}
	})
}

// TestAnswererOnDenied checks that OnDenied makes the error of a denial, and gets the decision.
func TestAnswererOnDenied(t *testing.T) {
	each(t, func(b *testbed) {
		var seen core.Result
		var denied *guard.DeniedError
		limit := grpclimit.NewAnswerer(grpclimit.OnDenied(func(ctx context.Context, err error) error {
			seen, _ = grpclimit.Result(ctx)
			errors.As(err, &denied)
			return status.Error(codes.Aborted, "not now")
		}))
		b.answers(nil, limit, nil, b.fixed(1))
		b.call().want(codes.OK)
		b.call().want(codes.Aborted)
		if seen.Allowed || seen.Limit != 1 || denied == nil || denied.Result.Limit != 1 {
			b.Errorf("OnDenied got the Result %+v and the error %+v, want a denial by a limit of 1", seen, denied)
		}
	})
}

// TestAnswererInStream calls a limiter for each message of a stream. A denial after the header was sent must end the stream with RetryInfo,
// and not change the header.
func TestAnswererInStream(t *testing.T) {
	each(t, func(b *testbed) {
		if !b.stream {
			return
		}
		lim, limit := b.fixed(3), grpclimit.NewAnswerer()
		b.serve = func(ctx context.Context, send func()) error {
			for {
				res, err := lim.Allow(ctx, "k")
				if err := limit.Answer(ctx, res, err); err != nil {
					return err
				}
				send()
			}
		}
		b.start(sending(limit))
		a := b.call()
		a.want(codes.ResourceExhausted)
		if got := a.header.Get("x-ratelimit-remaining"); !slices.Equal(got, []string{"2"}) {
			b.Errorf("the header has x-ratelimit-remaining %v, want 2", got)
		}
		if got := a.trailer.Get("x-ratelimit-remaining"); got != nil {
			b.Errorf("the trailer has x-ratelimit-remaining %v, want none", got)
		}
		retry := slices.IndexFunc(a.status.Details(), func(detail any) bool { _, ok := detail.(*errdetails.RetryInfo); return ok })
		if retry < 0 {
			b.Errorf("got the details %v, want a RetryInfo in them", a.status.Details())
		}
	})
}
