package suite_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	_ "google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	grpclimit "github.com/redislimit/redislimit/grpc"
	"github.com/redislimit/redislimit/keyfunc"
)

// TestStacked checks that the headers describe the tighter of two limits, once, whichever is the outer one, and that the details of a denial
// name the limit that denied.
func TestStacked(t *testing.T) {
	for _, swap := range []bool{false, true} {
		each(t, func(b *testbed) {
			var shown int64
			b.serve = func(ctx context.Context, send func()) error {
				res, _ := grpclimit.Result(ctx)
				shown = res.Limit
				send()
				return nil
			}
			loose, tight := by(b.limiter("loose", core.FixedWindow(core.PerMinute(7)))), by(b.limiter("tight", core.FixedWindow(core.PerMinute(2))))
			if swap {
				loose, tight = tight, loose
			}
			b.behind(loose, tight)
			for _, remaining := range []string{"1", "0"} {
				a := b.call()
				a.want(codes.OK)
				a.wantHeaders("2", remaining, "1800000073", "")
				if shown != 2 {
					b.Errorf("the handler's Result has the limit %d, want 2", shown)
				}
			}
			a := b.call()
			a.want(codes.ResourceExhausted)
			a.wantHeaders("2", "0", "1800000073", "60")
			a.wantDetails(`tight: limit "fixed-1m" of 2 exceeded; retry in 1m0s`)
		})
	}
}

// with returns lim with other limits.
func with(t *testing.T, lim *core.Limiter, limits ...core.Limit) *core.Limiter {
	t.Helper()
	l, err := lim.With(limits...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestUnlimited makes calls as a client without a limit, as a banned client, and as a client with a limit of 0.
func TestUnlimited(t *testing.T) {
	each(t, func(b *testbed) {
		lim, option := b.limiter("api", core.FixedWindow(core.PerMinute(1)), core.Ban()), guard.ResetInSeconds()
		b.behind(by(with(t, lim, core.Unlimited()), option))
		for range 3 {
			a := b.call()
			a.want(codes.OK)
			a.wantHeaders("", "", "", "")
		}
		if err := lim.Block(t.Context(), ipKey, time.Minute); err != nil {
			t.Fatal(err)
		}
		a := b.call()
		a.want(codes.ResourceExhausted)
		a.wantHeaders("", "", "", "60")
		a.wantDetails("api: banned; retry in 1m0s")
		if err := lim.Unblock(t.Context(), ipKey); err != nil {
			t.Fatal(err)
		}
		b.behind(by(with(t, lim, core.FixedWindow(core.PerDay(0))), option))
		a = b.call()
		a.want(codes.ResourceExhausted)
		a.wantHeaders("0", "0", "0", "")
		a.wantDetails(`api: limit "fixed-1d" of 0 exceeded`)
	})
}

// TestHeaderPrefix checks metadata with other names: the names must be in lower case, in the header of a call that is served, and in the trailer
// of a call that is denied.
func TestHeaderPrefix(t *testing.T) {
	each(t, func(b *testbed) {
		b.behind(by(b.fixed(1), guard.HeaderPrefix("X-Rate-Limit-"), guard.ResetInSeconds()))
		for _, c := range []struct {
			code codes.Code
			wait string
		}{{codes.OK, ""}, {codes.ResourceExhausted, "60"}} {
			a := b.call()
			a.want(c.code)
			a.wantHeaders("", "", "", c.wait)
			there := a.header
			if c.code != codes.OK {
				there = a.trailer
			}
			for name, want := range map[string]string{"x-rate-limit-limit": "1", "x-rate-limit-remaining": "0", "x-rate-limit-reset": "60"} {
				if got := strings.Join(there.Get(name), " and "); got != want {
					b.Errorf("%v: got %s %q, want %q", c.code, name, got, want)
				}
			}
		}
	})
}

// TestHandlersHeader makes handlers send metadata of their own, in each way that gRPC has.
func TestHandlersHeader(t *testing.T) {
	own := metadata.Pairs("own", "1")
	for name, c := range map[string]struct {
		do      func(ctx context.Context, send func())
		trailer bool // whether the header is sent without the limit's, which is then in the trailer
	}{
		"SetHeader":  {func(ctx context.Context, _ func()) { _ = grpc.SetHeader(ctx, own) }, false},
		"SetAndSend": {func(ctx context.Context, send func()) { _ = grpc.SetHeader(ctx, own); send() }, false},
		"SendHeader": {func(ctx context.Context, _ func()) { _ = grpc.SendHeader(ctx, own) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(b *testbed) {
				b.serve = func(ctx context.Context, send func()) error { c.do(ctx, send); return nil }
				b.behind(by(b.fixed(2)))
				a := b.call()
				a.want(codes.OK)
				if c.trailer {
					a.header.Set("x-ratelimit-limit", a.trailer.Get("x-ratelimit-limit")...)
				}
				if strings.Join(a.header.Get("own"), "") != "1" || strings.Join(a.header.Get("x-ratelimit-limit"), "") != "2" {
					b.Errorf("got the header %v and the trailer %v, want the metadata of the handler and of the limit", a.header, a.trailer)
				}
			})
		})
	}
}

// TestStreamsOwnHeader makes the handler send the header of a stream before any message: the header must contain the limit's metadata, too.
func TestStreamsOwnHeader(t *testing.T) {
	sent := make(chan struct{})
	limited := grpclimit.Stream(core.MustNewMemory("api", core.FixedWindow(core.PerDay(2))), keyfunc.IP())
	server := grpc.NewServer(grpc.StreamInterceptor(limited), grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		err := stream.SendHeader(metadata.Pairs("own", "1"))
		<-sent
		return err
	}))
	addr := serveOn(t, server)
	stream, err := dial(t, addr).NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, "/a/b")
	if err != nil {
		t.Fatal(err)
	}
	header, err := stream.Header()
	close(sent)
	if err != nil || strings.Join(header.Get("own"), "") != "1" || strings.Join(header.Get("x-ratelimit-limit"), "") != "2" {
		t.Errorf("got the header %v, %v; want the metadata of the handler and of the limit", header, err)
	}
	_ = stream.RecvMsg(&grpc_testing.Empty{})
}

// TestCompressor makes a handler choose the compressor, for which gRPC must find its own transport in the context.
func TestCompressor(t *testing.T) {
	each(t, func(b *testbed) {
		b.serve = func(ctx context.Context, _ func()) error { return grpc.SetSendCompressor(ctx, "gzip") }
		b.behind(by(b.fixed(2)))
		b.call().want(codes.OK)
	})
}

// TestAnsweredBetween uses an interceptor between two limits that answers calls that the inner limit denies, without an error: the headers of
// the denial must be in the header.
func TestAnsweredBetween(t *testing.T) {
	each(t, func(b *testbed) {
		outer, inner := by(b.limiter("outer", core.FixedWindow(core.PerMinute(9)))), by(b.fixed(1))
		between := around(func(ctx context.Context, next func(context.Context) error) error {
			_ = next(ctx)
			return nil
		})
		limited := []grpc.ServerOption{
			grpc.ChainUnaryInterceptor(grpclimit.Unary(outer.lim, outer.key)),
			grpc.ChainStreamInterceptor(grpclimit.Stream(outer.lim, outer.key)),
		}
		b.start(append(limited, between...), inner)
		b.call().want(codes.OK)
		a := b.call()
		a.want(codes.OK)
		a.wantHeaders("1", "0", "1800000073", "60")
	})
}
