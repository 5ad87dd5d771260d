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

// answers starts a server whose handler calls each limiter itself, and answers with limit.
func (b *testbed) answers(options []grpc.ServerOption, limit *grpclimit.Answerer, mounts []mount, asks ...*core.Limiter) {
	b.Helper()
	b.serve = func(ctx context.Context, send func()) error {
		for _, lim := range asks {
			res, err := lim.Allow(ctx, "asked")
			if err := limit.Answer(ctx, res, err); err != nil {
				return err
			}
		}
		send()
		return nil
	}
	b.start(options, mounts...)
}

// sending are the interceptors of an Answerer.
func sending(limit *grpclimit.Answerer) []grpc.ServerOption {
	return []grpc.ServerOption{grpc.ChainUnaryInterceptor(limit.Unary()), grpc.ChainStreamInterceptor(limit.Stream())}
}

// TestAnswererAsInterceptor compares what a client gets from an interceptor and from a handler that calls the same limiter itself.
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
	slices.Sort(interceptors) // each has no order
	slices.Sort(handlers)
	if !slices.Equal(interceptors, handlers) {
		t.Errorf("of interceptors: %q\nof handlers: %q", interceptors, handlers)
	}
}

// untilOutage makes calls that are admitted, calls that are denied, and calls during an outage. It returns what their client gets.
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

// TestAnswererHeaders asks two limiters in one handler: the headers describe the tighter one, once, and a denial is in the trailer. Without
// an interceptor only the denial is there.
func TestAnswererHeaders(t *testing.T) {
	each(t, func(b *testbed) {
		limit := grpclimit.NewAnswerer()
		for name, c := range map[string]struct {
			options []grpc.ServerOption
			mounts  func() []mount
			alone   bool
		}{
			"its own interceptor": {sending(limit), func() []mount { return nil }, false},
			"that of a limiter":   {nil, func() []mount { return []mount{by(b.limiter("outer", core.FixedWindow(core.PerMinute(90))))} }, false},
			"twice":               {append(sending(limit), sending(limit)...), func() []mount { return nil }, false},
			"none":                {nil, func() []mount { return nil }, true},
		} {
			for _, tightFirst := range []bool{false, true} {
				b.redis.FlushAll()
				asks := []*core.Limiter{b.limiter("tight", core.FixedWindow(core.PerMinute(1))), b.limiter("loose", core.FixedWindow(core.PerMinute(9)))}
				if !tightFirst {
					slices.Reverse(asks)
				}
				b.answers(c.options, limit, c.mounts(), asks...)
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

// TestAnswererErrors passes the errors that a call of package core may return.
func TestAnswererErrors(t *testing.T) {
	each(t, func(b *testbed) {
		lim := b.limiter("api", core.FixedWindow(core.PerMinute(1)))
		limit := grpclimit.NewAnswerer()
		for name, c := range map[string]struct {
			ask  func(ctx context.Context) (core.Decision, error)
			code codes.Code
		}{
			"no handle": {func(context.Context) (core.Decision, error) {
				return (*core.Reservation)(nil), fmt.Errorf("secret detail: %w", core.ErrUnavailable)
			}, codes.Unavailable},
			"an empty key":   {func(ctx context.Context) (core.Decision, error) { return lim.Allow(ctx, "") }, codes.Internal},
			"no decision":    {func(context.Context) (core.Decision, error) { return core.Result{}, nil }, codes.Internal},
			"never admitted": {func(ctx context.Context) (core.Decision, error) { return lim.WaitN(ctx, "asked", 2) }, codes.ResourceExhausted},
			"a deadline of the handler's own": {func(ctx context.Context) (core.Decision, error) {
				ctx, cancel := context.WithDeadline(ctx, time.Unix(1, 0))
				defer cancel()
				return lim.Allow(ctx, "asked")
			}, codes.Unavailable},
		} {
			b.serve = func(ctx context.Context, _ func()) error {
				decision, err := c.ask(ctx)
				return limit.Answer(ctx, decision, err)
			}
			b.behind()
			a := b.call()
			if a.want(c.code); a.status.Message() == "" || strings.Contains(a.status.Message(), "secret detail") {
				b.Errorf("%s: the client is told %q", name, a.status.Message())
			}
			b.stop()
		}
		canceled, cancel := context.WithCancel(context.Background())
		cancel()
		late, cancel := context.WithDeadline(context.Background(), time.Unix(1, 0))
		defer cancel()
		for want, ctx := range map[codes.Code]context.Context{codes.Canceled: canceled, codes.DeadlineExceeded: late} {
			res, err := lim.Allow(ctx, "asked")
			if got := status.Code(limit.Answer(ctx, res, err)); got != want {
				b.Errorf("of a call that has ended: %v, want %v", got, want)
			}
		}
	})
}

// TestAnswererOnDenied lets the application make the error of a denial. It sees the decision.
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
			b.Errorf("seen: %+v, %+v", seen, denied)
		}
	})
}

// TestAnswererInStream asks about each message of a stream. A denial after the header was sent ends the stream with RetryInfo, and the
// header stays as it was.
func TestAnswererInStream(t *testing.T) {
	each(t, func(b *testbed) {
		if !b.stream {
			return
		}
		lim, limit := b.fixed(3), grpclimit.NewAnswerer()
		b.serve = func(ctx context.Context, send func()) error {
			for {
				res, err := lim.Allow(ctx, "asked")
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
			b.Errorf("the header has %v", got)
		}
		if got := a.trailer.Get("x-ratelimit-remaining"); got != nil {
			b.Errorf("the trailer has %v", got)
		}
		retry := slices.IndexFunc(a.status.Details(), func(detail any) bool { _, ok := detail.(*errdetails.RetryInfo); return ok })
		if retry < 0 {
			b.Errorf("no RetryInfo in %v", a.status.Details())
		}
	})
}
