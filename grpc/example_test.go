package grpclimit_test

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	grpclimit "github.com/redislimit/redislimit/grpc"
	"github.com/redislimit/redislimit/keyfunc"
)

// Calls cost by their size, and only those count that succeed. A client may have five streams open.
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

// A client reads when to come back.
func ExampleUnary_client() {
	call := func(context.Context) error { return status.Error(codes.ResourceExhausted, "too many requests") } // of a generated client
	err := call(context.Background())
	if status.Code(err) == codes.ResourceExhausted {
		for _, detail := range status.Convert(err).Details() {
			if retry, ok := detail.(*errdetails.RetryInfo); ok {
				time.Sleep(retry.GetRetryDelay().AsDuration())
			}
		}
	}
}

// A stream's messages are charged when it ends.
func ExampleStream() {
	lim := core.MustNewMemory("rows", core.TokenBucket(core.PerMinute(10_000)))
	_ = grpc.NewServer(grpc.ChainStreamInterceptor(grpclimit.Stream(lim, keyfunc.IP(), guard.CostAfter())))

	// in the handler:
	_ = func(stream grpc.ServerStreamingServer[wrapperspb.StringValue], rows []string) error {
		for i, row := range rows {
			if err := stream.Send(wrapperspb.String(row)); err != nil {
				return err
			}
			grpclimit.SetCost(stream.Context(), int64(i+1)) // so far: the client may leave
		}
		return nil
	}
}
