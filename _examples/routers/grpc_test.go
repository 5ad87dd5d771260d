package routers

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/faultproxy"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

// serveGRPC returns a connection to a gRPC server whose calls the interceptor limits, and what waits until all of them have
// returned there. served is called for each that the interceptor lets through.
func serveGRPC(t *testing.T, limits grpc.UnaryServerInterceptor, served func()) (conn *grpc.ClientConn, stop func()) {
	t.Helper()
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(limits))
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "greet.v1.GreetService", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Greet", Handler: func(_ any, ctx context.Context, decode func(any) error, limited grpc.UnaryServerInterceptor) (any, error) {
			request := &wrapperspb.StringValue{}
			if err := decode(request); err != nil {
				return nil, err
			}
			return limited(ctx, request, &grpc.UnaryServerInfo{FullMethod: greet}, func(context.Context, any) (any, error) {
				served()
				return request, nil
			})
		}}},
	}, nil)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	conn, err = grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn, server.GracefulStop
}

func TestGRPC(t *testing.T) {
	conn, _ := serveGRPC(t, GRPC(limiter(t, 2)), func() {})
	for i, want := range []codes.Code{codes.OK, codes.OK, codes.ResourceExhausted} {
		err := conn.Invoke(t.Context(), greet, wrapperspb.String("x"), &wrapperspb.StringValue{})
		if status.Code(err) != want {
			t.Errorf("call %d: %v, want %v", i, err, want)
		}
		if want == codes.OK {
			continue
		}
		details := status.Convert(err).Details()
		if len(details) != 1 {
			t.Fatalf("details: %v", details)
		}
		if retry, ok := details[0].(*errdetails.RetryInfo); !ok || retry.GetRetryDelay().AsDuration() > time.Hour || retry.GetRetryDelay().AsDuration() < 59*time.Minute {
			t.Errorf("details: %v", details)
		}
	}
}

// TestGRPCDeadline has clients whose deadlines (grpc-timeout) are shorter and longer than a decision takes. FailOpen is for
// when Redis is away: it admits nothing beyond the limit because a client has little time.
func TestGRPCDeadline(t *testing.T) {
	const limit, calls, patience = 5, 100, time.Minute
	for _, far := range []time.Duration{5 * time.Millisecond, 130 * time.Millisecond} {
		for _, deadline := range []time.Duration{3 * time.Millisecond, 150 * time.Millisecond, patience} {
			t.Run(fmt.Sprintf("deadline=%v,redis=%v", deadline, far), func(t *testing.T) {
				t.Parallel()
				proxy := faultproxy.New(t, redistest.Server(t).Addr)
				proxy.Latency(far / 2) // each way
				rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr(), ReadTimeout: patience})
				t.Cleanup(func() { _ = rdb.Close() })
				lim := core.MustNew(rdb, "grpc", core.FixedWindow(core.PerHour(limit)), core.FailOpen(), core.Timeout(patience))
				t.Cleanup(func() { _ = lim.Close() })
				var admitted, late atomic.Int64
				conn, stop := serveGRPC(t, GRPC(lim), func() { admitted.Add(1) })
				var callers sync.WaitGroup
				for range calls / 10 {
					callers.Go(func() {
						for range 10 {
							ctx, cancel := context.WithTimeout(t.Context(), deadline)
							err := conn.Invoke(ctx, greet, wrapperspb.String("x"), &wrapperspb.StringValue{})
							cancel()
							if code := status.Code(err); code == codes.DeadlineExceeded || code == codes.Unavailable {
								late.Add(1)
							}
						}
					})
				}
				callers.Wait()
				stop()
				n, left := admitted.Load(), late.Load()
				if n > limit || n < limit && (left == 0 || deadline == patience) {
					t.Errorf("%d of %d calls were admitted, want %d; the deadline ended %d before", n, calls, limit, left)
				}
				t.Logf("%d of %d admitted, %d too late", n, calls, left)
			})
		}
	}
}

// TestGRPCEnds has calls of a limiter with a queue and slots: each waits for its turn, and gives back what it has.
func TestGRPCEnds(t *testing.T) {
	const interval = 50 * time.Millisecond
	lim := core.MustNewMemory("example", core.LeakyBucket(core.Per(1, interval), core.Burst(9)), core.InFlight(2))
	limited := func(ctx context.Context, handler func()) error {
		_, err := GRPC(lim)(ctx, nil, nil, func(context.Context, any) (any, error) {
			handler()
			return struct{}{}, nil
		})
		return err
	}
	start := time.Now()
	if err := limited(t.Context(), func() {
		if err := limited(t.Context(), func() {
			if took := time.Since(start); took < interval {
				t.Errorf("the second call was served after %v, want %v", took, interval)
			}
			if err := limited(t.Context(), func() { t.Error("a third slot of two") }); status.Code(err) != codes.ResourceExhausted {
				t.Error(err)
			}
		}); err != nil {
			t.Error(err)
		}
	}); err != nil {
		t.Error(err)
	}
	if err := limited(t.Context(), func() {
		leaves, leave := context.WithTimeout(t.Context(), interval/10)
		defer leave()
		if err := limited(leaves, func() { t.Error("who leaves the queue is served") }); err == nil {
			t.Error("who leaves the queue is told of no error")
		}
	}); err != nil {
		t.Error(err)
	}
	res, err := lim.Peek(t.Context(), "no address")
	if err != nil {
		t.Fatal(err)
	}
	for each := range res.All() {
		if each.Name == "inflight" && each.Remaining != 2 {
			t.Errorf("%d slots are free, want 2", each.Remaining)
		}
	}
}
