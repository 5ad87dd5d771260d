// Package grpclimit is rate limiting for gRPC servers: one line for unary calls, and one for
// streams.
//
//	lim := core.MustNew(rdb, "api", core.TokenBucket(core.PerMinute(100)))
//	grpc.NewServer(
//		grpc.ChainUnaryInterceptor(grpclimit.Unary(lim, keyfunc.IP())),
//		grpc.ChainStreamInterceptor(grpclimit.Stream(lim, keyfunc.IP())))
//
// Key functions see the metadata of a call as headers, its full method, such as
// "/greet.v1.GreetService/Greet", as the path and, if a service has it, the route, and POST as the
// method. What an interceptor further out stores in the context is there for [keyfunc.User].
//
// A call that is not served ends with one of these codes:
//
//	RESOURCE_EXHAUSTED   denied, with errdetails.QuotaFailure and, with when to come back, RetryInfo,
//	                     unless guard.NoHeaders hides them
//	UNAVAILABLE          the limiter could not decide, with RetryInfo
//	CANCELED, DEADLINE_EXCEEDED   the client has left, or its deadline came first
//	INTERNAL             the key function or LimiterFor failed
//
// The headers about the limit are metadata, in lower case: in the header of a call that is served,
// and in the trailer of one that is not, where clients have them with the error.
//
// Where RetryInfo is sent, the trailer also has grpc-retry-pushback-ms, which gRPC's own clients
// read: a client with a retry policy for the code waits that long before its next attempt,
// unless its deadline comes first. [guard.MaxRetryAfter] bounds that wait, too. The trailer is
// -1, and such a client does not try again, if the call can never be admitted (its cost is above
// the limit) or ends with INTERNAL. Clients without a retry policy ignore it.
package grpclimit

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/core/guard/adapter"
	"github.com/redislimit/redislimit/keyfunc"
)

// framework makes the Guards, which decide. A Guard's Verdict has a Status as of HTTP: 0 serves the
// call, and 429, 503, 500 or 499 does not, for the reason in Err. It has the limiter's Result, and
// the Context to serve with, if that is another. Guard.Finish is told how the call ended.
const framework = adapter.Adapter[*Call, func(context.Context, error) error]("grpclimit")

// Unary returns an interceptor that asks lim about each unary call, counted by key.
//
// A call waits for a LeakyBucket's Delay. If the client leaves meanwhile, the wait ends and the
// charge is refunded. Calls that hold slots of [core.InFlight] have a context that is canceled,
// with the cause [core.ErrSlotLost], if the slots are lost. A call that its handler then ends with
// CANCELED is ABORTED for its client, which did not cancel it.
//
// It panics at once if lim or key is nil.
func Unary(lim *core.Limiter, key keyfunc.Func, opts ...guard.Option) grpc.UnaryServerInterceptor {
	l := newLimit(lim, key, opts)
	return func(ctx context.Context, message any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (reply any, err error) {
		q := newRequest(ctx, Call{FullMethod: info.FullMethod, Server: info.Server, Message: message})
		err = l.serve(q, func(ctx context.Context) error {
			reply, err = next(ctx, message)
			return err
		})
		return reply, err
	}
}

// Stream is Unary for streams. A stream is one call, whatever the number of its messages: it is
// decided about when it begins, and holds its slots until its handler has returned. Its messages
// are not known then: [guard.CostAfter] and [SetCost] charge for them.
//
// RecvMsg does not notice that slots are lost: a handler that waits for messages must look at the
// context of its stream.
func Stream(lim *core.Limiter, key keyfunc.Func, opts ...guard.Option) grpc.StreamServerInterceptor {
	l := newLimit(lim, key, opts)
	return func(server any, inner grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		q := newRequest(inner.Context(), Call{FullMethod: info.FullMethod, Server: server})
		return l.serve(q, func(ctx context.Context) error {
			return next(server, &stream{inner, ctx, q.state})
		})
	}
}

// OnDenied has h make the error of denied calls. It is given the one that they have without it:
// status.Convert has its code and details, and errors.As finds a *guard.DeniedError in it. [Result]
// has the decision. If h returns nil, the error stays as it is.
func OnDenied(h func(ctx context.Context, err error) error) guard.AnswerOption {
	return framework.OnDenied(h)
}

// OnError is OnDenied for calls without a decision.
func OnError(h func(ctx context.Context, err error) error) guard.AnswerOption {
	return framework.OnError(h)
}

// CountIf is [guard.CountIf] by code: only calls that end with one for which count returns true are
// counted. A panic is INTERNAL.
//
// guard.CountIf itself gets the HTTP status that stands for a code, as gRPC-gateway answers it:
// UNAUTHENTICATED is 401, RESOURCE_EXHAUSTED 429.
func CountIf(count func(codes.Code) bool) guard.Option {
	if count == nil {
		return framework.CountIf(nil)
	}
	return framework.CountIf(func(code int) bool { return count(codes.Code(code)) })
}

// Key returns a key function that calls f with the call and its context. Add a prefix to the key,
// as in "tenant:"+id, so that it never equals a key of another kind. If f returns
// [keyfunc.ErrNoKey], the call is counted as that says; any other error ends it with INTERNAL.
// Under the middleware of another adapter the key function panics.
func Key(f func(context.Context, *Call) (string, error)) keyfunc.Func {
	return framework.ContextKey(f)
}

// Request returns a call as key functions see it, so that the function given to [Key] can call
// others, such as [keyfunc.IP].
func Request(ctx context.Context, call *Call) keyfunc.Request {
	return &request{ctx: ctx, call: *call, state: stateIn(ctx)}
}

// Result returns the decision about the call whose context ctx is: the tightest one of stacked
// interceptors, also of those that set no headers. It reports false if no limiter decided.
func Result(ctx context.Context) (core.Result, bool) { return stateIn(ctx).guards().Result() }

// SetCost sets what the call whose context is ctx really costs: the interceptors with
// [guard.CostAfter] charge n units when it ends, and others ignore it. Of several calls of SetCost
// the last one counts. A negative n is a mistake: it is logged, and what was reserved is charged.
func SetCost(ctx context.Context, n int64) { stateIn(ctx).guards().SetCost(n) }
