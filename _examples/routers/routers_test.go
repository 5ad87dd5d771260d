package routers

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/keyfunc"
	"github.com/redislimit/redislimit/limittest"
)

// limiter allows n requests an hour.
func limiter(t *testing.T, n int64) *core.Limiter {
	t.Helper()
	lim := core.MustNewMemory("example", core.FixedWindow(core.PerHour(n)))
	return lim
}

func get(t *testing.T, h http.Handler, path string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return w
}

// left returns what is left of a key.
func left(t *testing.T, lim *core.Limiter, key string) int64 {
	t.Helper()
	res, err := lim.Peek(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return res.Remaining
}

const address = "ip:192.0.2.1" // of httptest

func TestChi(t *testing.T) {
	all, users := limiter(t, 10), limiter(t, 2)
	h := Chi(all, users)
	for i, want := range []int{200, 200, 429} {
		if w := get(t, h, "/users/"+strings.Repeat("x", i+1)); w.Code != want {
			t.Errorf("request %d: %d, want %d", i, w.Code, want)
		}
	}
	if n, m := left(t, all, address), left(t, users, keyfunc.ForJoin(address, keyfunc.ForRoute("/users/{id}"))); n != 7 || m != 0 {
		t.Errorf("%d of all and %d of the route left, want 7 and 0", n, m)
	}
}

func TestMux(t *testing.T) {
	lim := limiter(t, 2)
	h := Mux(lim)
	for i, want := range []int{200, 200, 429} {
		if w := get(t, h, "/users/"+strings.Repeat("x", i+1)); w.Code != want {
			t.Errorf("request %d: %d, want %d", i, w.Code, want)
		}
	}
	if n := left(t, lim, keyfunc.ForJoin(address, keyfunc.ForRoute("/users/{id}"))); n != 0 {
		t.Errorf("%d of the route left", n)
	}
}

func TestHuma(t *testing.T) {
	h := Huma(limiter(t, 2))
	if w := get(t, h, "/users/1"); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "1 left") || w.Header().Get("X-RateLimit-Remaining") != "1" {
		t.Error(w.Code, w.Header(), w.Body)
	}
	get(t, h, "/users/2")
	if w := get(t, h, "/users/3"); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "3600" {
		t.Error(w.Code, w.Header(), w.Body)
	}
}

func TestGateway(t *testing.T) {
	h, err := Gateway(limiter(t, 1))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{200, 429} {
		if w := get(t, h, "/users/1"); w.Code != want {
			t.Errorf("request %d: %d, want %d", i, w.Code, want)
		}
	}
}

// TestConnect asks in each of the three protocols.
func TestConnect(t *testing.T) {
	for protocol, option := range map[string]connect.ClientOption{
		"connect": connect.WithHTTPGet(), "connect, JSON": connect.WithProtoJSON(), "gRPC": connect.WithGRPC(), "gRPC-Web": connect.WithGRPCWeb(),
	} {
		t.Run(protocol, func(t *testing.T) {
			if reply, err := call(t, Connect(limittest.Allow()), option); err != nil || reply.Msg.GetValue() != "hello world" {
				t.Fatal(reply, err)
			}
			_, err := call(t, Connect(limittest.Deny(30e9)), option)
			var denied *connect.Error
			if !errors.As(err, &denied) || denied.Code() != connect.CodeResourceExhausted || denied.Meta().Get("Retry-After") != "30" {
				t.Errorf("%v, with %v", err, denied.Meta())
			}
		})
	}
	if w := get(t, Connect(limittest.Deny(30e9)), "/"); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "30" {
		t.Error("a browser:", w.Code, w.Header())
	}
}

func call(t *testing.T, h http.Handler, option connect.ClientOption) (*connect.Response[wrapperspb.StringValue], error) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	client := connect.NewClient[wrapperspb.StringValue, wrapperspb.StringValue](s.Client(), s.URL+greet, option)
	return client.CallUnary(t.Context(), connect.NewRequest(wrapperspb.String("world")))
}

func TestGRPC(t *testing.T) {
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(GRPC(limiter(t, 2))))
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "greet.v1.GreetService", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Greet", Handler: func(_ any, ctx context.Context, decode func(any) error, limited grpc.UnaryServerInterceptor) (any, error) {
			request := &wrapperspb.StringValue{}
			if err := decode(request); err != nil {
				return nil, err
			}
			return limited(ctx, request, &grpc.UnaryServerInfo{FullMethod: greet}, func(context.Context, any) (any, error) { return request, nil })
		}}},
	}, nil)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
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
