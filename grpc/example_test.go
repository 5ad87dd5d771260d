package grpclimit_test

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	grpclimit "github.com/redislimit/redislimit/grpc"
	"github.com/redislimit/redislimit/keyfunc"
)

// The cost of a call is its size, and only successful calls are counted. A client may have five streams open.
func ExampleUnary() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
	calls := core.MustNew(rdb, "calls", core.TokenBucket(core.PerMinute(1000)))
	streams := core.MustNew(rdb, "streams", core.InFlight(5))

	client := keyfunc.FirstOf(keyfunc.Bearer(), keyfunc.IP())
	size := guard.Cost(func(r keyfunc.Request) int64 {
		message, _ := r.Unwrap().(*grpclimit.Call).Message.(*wrapperspb.BytesValue)
		return 1 + int64(len(message.GetValue()))/1024
	})
	succeeded := grpclimit.CountIf(func(code codes.Code) bool { return code == codes.OK })
	_ = grpc.NewServer(
		grpc.ChainUnaryInterceptor(grpclimit.Unary(calls, client, size, succeeded)),
		grpc.ChainStreamInterceptor(grpclimit.Stream(streams, client)))
}

// call makes a call as a client does. The tenant is in the metadata of the call.
func call(limited grpc.UnaryServerInterceptor, tenant string, handler grpc.UnaryHandler) {
	ctx := metadata.NewIncomingContext(context.Background(), metadata.Pairs("tenant", tenant))
	_, err := limited(ctx, wrapperspb.String("hello"), &grpc.UnaryServerInfo{FullMethod: "/greet.v1.GreetService/Greet"}, handler)
	fmt.Println(tenant, status.Code(err))
}

// Calls are counted by their method and by a tenant in their metadata, which your gateway has written.
func ExampleKey() {
	lim := core.MustNewMemory("api", core.FixedWindow(core.PerHour(1)))
	byTenant := grpclimit.Key(func(ctx context.Context, c *grpclimit.Call) (string, error) {
		tenant := metadata.ValueFromIncomingContext(ctx, "tenant")
		if len(tenant) != 1 || tenant[0] == "" {
			return "", keyfunc.ErrNoKey
		}
		return "tenant:" + tenant[0] + c.FullMethod, nil
	})
	limited := grpclimit.Unary(lim, byTenant)

	greet := func(context.Context, any) (any, error) { return wrapperspb.String("hello"), nil }
	for _, tenant := range []string{"acme", "initech", "acme"} {
		call(limited, tenant, greet)
	}
	// Output:
	// acme OK
	// initech OK
	// acme ResourceExhausted
}

// A call costs the rows that it has read.
func ExampleSetCost() {
	lim := core.MustNewMemory("rows", core.TokenBucket(core.PerHour(10_000)))
	limited := grpclimit.Unary(lim, keyfunc.Global(), guard.CostAfter())

	call(limited, "acme", func(ctx context.Context, _ any) (any, error) {
		grpclimit.SetCost(ctx, 7000)
		return wrapperspb.String("many rows"), nil
	})
	res, _ := lim.Peek(context.Background(), "global")
	fmt.Println(res.Remaining, "left")
	// Output:
	// acme OK
	// 3000 left
}

// Only calls with a wrong password are counted, so that nobody can try more than two wrong passwords per hour.
func ExampleCountIf() {
	lim := core.MustNewMemory("logins", core.FixedWindow(core.PerHour(2)))
	failed := grpclimit.CountIf(func(code codes.Code) bool { return code == codes.Unauthenticated })
	limited := grpclimit.Unary(lim, keyfunc.Global(), failed)

	right := func(context.Context, any) (any, error) { return wrapperspb.String("welcome"), nil }
	wrong := func(context.Context, any) (any, error) {
		return nil, status.Error(codes.Unauthenticated, "wrong password")
	}
	for _, login := range []grpc.UnaryHandler{right, right, right, wrong, wrong, wrong} {
		call(limited, "acme", login)
	}
	// Output:
	// acme OK
	// acme OK
	// acme OK
	// acme Unauthenticated
	// acme Unauthenticated
	// acme ResourceExhausted
}

// A client reads from the error how long to wait.
func ExampleUnary_client() {
	greet := func(context.Context) error { return status.Error(codes.ResourceExhausted, "too many requests") } // in practice, a method of a generated client
	err := greet(context.Background())
	if status.Code(err) == codes.ResourceExhausted {
		for _, detail := range status.Convert(err).Details() {
			if retry, ok := detail.(*errdetails.RetryInfo); ok {
				time.Sleep(retry.GetRetryDelay().AsDuration())
			}
		}
	}
}

// The messages of a stream are charged when the stream ends.
func ExampleStream() {
	lim := core.MustNewMemory("rows", core.TokenBucket(core.PerMinute(10_000)))
	_ = grpc.NewServer(grpc.ChainStreamInterceptor(grpclimit.Stream(lim, keyfunc.IP(), guard.CostAfter())))

	// in the handler:
	_ = func(stream grpc.ServerStreamingServer[wrapperspb.StringValue], rows []string) error {
		for i, row := range rows {
			if err := stream.Send(wrapperspb.String(row)); err != nil {
				return err
			}
			grpclimit.SetCost(stream.Context(), int64(i+1)) // the cost so far, because the client may leave
		}
		return nil
	}
}
