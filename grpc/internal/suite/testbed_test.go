package suite_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	grpclimit "github.com/redislimit/redislimit/grpc"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/limits"
	"github.com/redislimit/redislimit/internal/testkit/mini"
	"github.com/redislimit/redislimit/internal/testkit/redisclient"
	"github.com/redislimit/redislimit/keyfunc"
)

const (
	unaryMethod  = "/grpc.testing.TestService/UnaryCall"
	streamMethod = "/grpc.testing.TestService/FullDuplexCall"
	patience     = time.Minute // how long clients wait, because the machine may be busy
	ipKey        = "ip:127.0.0.1"
	peerKey      = "peer:127.0.0.1"
)

// start is the time that the clock of Redis shows. The clock stands still.
var start = time.UnixMicro(1_800_000_012_345_678)

// A mount is one limit that a server applies to unary calls and to streams.
type mount struct {
	lim  *core.Limiter
	key  keyfunc.Func
	opts []guard.Option
}

// by returns a mount that counts by address.
func by(lim *core.Limiter, opts ...guard.Option) mount { return mount{lim, keyfunc.IP(), opts} }

// A testbed has a Redis whose clock stands still, and a service.
type testbed struct {
	*testing.T

	redis  *miniredis.Miniredis
	client *redis.Client
	stream bool // whether the calls are streams
	logs   *check.Log

	// serve is what the service does. Its arguments are the context of the handler, and a function that sends a message of a stream.
	serve func(ctx context.Context, send func()) error
	app   grpc_testing.TestServiceClient
	stop  func() // stops the server after the calls in flight
}

// each runs a test with unary calls, and again with streams.
func each(t *testing.T, run func(b *testbed)) {
	t.Helper()
	for name, stream := range map[string]bool{"Unary": false, "Stream": true} {
		t.Run(name, func(t *testing.T) {
			server := mini.Redis(t)
			server.SetTime(start)
			client := redisclient.New(t, &redis.Options{
				Addr: server.Addr(), DialTimeout: patience, ReadTimeout: patience, WriteTimeout: patience, PoolTimeout: patience,
			})
			b := &testbed{T: t, redis: server, client: client, stream: stream, logs: &check.Log{}}
			b.serve = func(context.Context, func()) error { return nil }
			run(b)
		})
	}
}

// limiter returns a limiter for which only Redis decides.
func (b *testbed) limiter(name string, options ...core.Option) *core.Limiter {
	b.Helper()
	lim := core.MustNew(b.client, name, append([]core.Option{
		core.FailClosed(), core.DenyCache(0), core.Timeout(patience), core.Logger(slog.New(slog.NewTextHandler(b.logs, nil))),
	}, options...)...)
	b.Cleanup(func() { _ = lim.Close() })
	return lim
}

// fixed returns a limiter of n per minute.
func (b *testbed) fixed(n int64) *core.Limiter {
	b.Helper()
	return b.limiter("api", core.FixedWindow(core.PerMinute(n)))
}

// behind starts a server behind limits, of which the first is the outermost.
func (b *testbed) behind(mounts ...mount) {
	b.Helper()
	b.start(nil, mounts...)
}

// start is like behind, with options of the server whose interceptors come before the limits.
func (b *testbed) start(options []grpc.ServerOption, mounts ...mount) {
	b.Helper()
	for _, m := range mounts {
		options = append(options, grpc.ChainUnaryInterceptor(grpclimit.Unary(m.lim, m.key, m.opts...)),
			grpc.ChainStreamInterceptor(grpclimit.Stream(m.lim, m.key, m.opts...)))
	}
	server := grpc.NewServer(options...)
	grpc_testing.RegisterTestServiceServer(server, &service{b: b})
	b.app, b.stop = grpc_testing.NewTestServiceClient(dial(b.T, serveOn(b.T, server))), server.GracefulStop
}

// around returns interceptors of calls and streams that call f. f calls next, which is the handler. If f drops the handler's error, the reply is
// empty.
func around(f func(ctx context.Context, next func(context.Context) error) error) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, message any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			var reply any = &grpc_testing.SimpleResponse{}
			err := f(ctx, func(ctx context.Context) error {
				served, err := next(ctx, message)
				if err == nil {
					reply = served
				}
				return err
			})
			return reply, err
		}),
		grpc.ChainStreamInterceptor(func(server any, inner grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			return f(inner.Context(), func(ctx context.Context) error { return next(server, &streamIn{inner, ctx}) })
		}),
	}
}

// streamIn is a stream with another context.
type streamIn struct {
	grpc.ServerStream

	ctx context.Context
}

func (s *streamIn) Context() context.Context { return s.ctx }

// serveOn serves until the test ends, and returns the address.
func serveOn(t *testing.T, server *grpc.Server) (addr string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return listener.Addr().String()
}

func dial(t *testing.T, addr string, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(addr, append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// A service does what its testbed says.
type service struct {
	grpc_testing.UnimplementedTestServiceServer

	b *testbed
}

func (s *service) UnaryCall(ctx context.Context, _ *grpc_testing.SimpleRequest) (*grpc_testing.SimpleResponse, error) {
	if err := s.b.serve(ctx, func() {}); err != nil {
		return nil, err
	}
	return &grpc_testing.SimpleResponse{}, nil
}

func (s *service) EmptyCall(context.Context, *grpc_testing.Empty) (*grpc_testing.Empty, error) {
	return &grpc_testing.Empty{}, nil
}

func (s *service) FullDuplexCall(stream grpc_testing.TestService_FullDuplexCallServer) error {
	return s.b.serve(stream.Context(), func() { _ = stream.Send(&grpc_testing.StreamingOutputCallResponse{}) })
}

// An answer is the status, header and trailer that a client gets for a call.
type answer struct {
	*testing.T

	code            codes.Code
	status          *status.Status
	header, trailer metadata.MD
}

// call calls the service with metadata, given as pairs of names and values.
func (b *testbed) call(pairs ...string) answer {
	b.Helper()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(b.Context(), pairs...), patience)
	defer cancel()
	return b.callIn(ctx)
}

func (b *testbed) callIn(ctx context.Context) answer {
	b.Helper()
	a := answer{T: b.T}
	var err error
	if b.stream {
		err = b.drain(ctx, &a)
	} else {
		_, err = b.app.UnaryCall(ctx, &grpc_testing.SimpleRequest{ResponseSize: 5}, grpc.Header(&a.header), grpc.Trailer(&a.trailer))
	}
	a.status = status.Convert(err)
	a.code = a.status.Code()
	return a
}

// drain reads a stream to its end.
func (b *testbed) drain(ctx context.Context, a *answer) error {
	stream, err := b.app.FullDuplexCall(ctx)
	for err == nil {
		_, err = stream.Recv()
	}
	if stream != nil {
		a.header, _ = stream.Header()
		a.trailer = stream.Trailer()
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func (a answer) want(code codes.Code) {
	a.Helper()
	if a.code != code {
		a.Errorf("got the code %v (%v), want %v", a.code, a.status.Message(), code)
	}
}

// wantHeaders checks the metadata about the limit: it must be in the header of a call that is served, and in the trailer of any other call, but not
// in both.
func (a answer) wantHeaders(limit, remaining, reset, retryAfter string) {
	a.Helper()
	there, other := a.header, a.trailer // where the metadata must be, and where it must not be
	if a.code != codes.OK {
		there, other = other, there
	}
	for name, want := range map[string]string{
		"x-ratelimit-limit": limit, "x-ratelimit-remaining": remaining, "x-ratelimit-reset": reset, "retry-after": retryAfter,
	} {
		if got := strings.Join(there.Get(name), " and "); got != want {
			a.Errorf("got %s %q, want %q", name, got, want)
		}
		if got := other.Get(name); got != nil {
			a.Errorf("%s is also in %v, want it in one place", name, other)
		}
	}
}

// wantLeft checks how much of each limit is left for a key.
func wantLeft(t *testing.T, lim *core.Limiter, key string, want ...int64) {
	t.Helper()
	if got := limits.Left(t, lim, key); !slices.Equal(got, want) {
		t.Errorf("%s of %s: %d are left, want %d", key, lim.Name(), got, want)
	}
}

// untilLeft is like wantLeft, for costs that are settled in the background.
func untilLeft(t *testing.T, lim *core.Limiter, key string, want ...int64) {
	t.Helper()
	if !check.Eventually(t, "the costs are settled", func() bool { return slices.Equal(limits.Left(t, lim, key), want) }) {
		t.Errorf("%s of %s: %d are left, want %d", key, lim.Name(), limits.Left(t, lim, key), want)
	}
}
