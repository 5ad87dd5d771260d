// Package grpclimit limits the rate of calls to a gRPC server. It takes one line for unary calls, and one
// for streams:
//
//	lim := core.MustNew(rdb, "api", core.TokenBucket(core.PerMinute(100)))
//	grpc.NewServer(
//		grpc.ChainUnaryInterceptor(grpclimit.Unary(lim, keyfunc.IP())),
//		grpc.ChainStreamInterceptor(grpclimit.Stream(lim, keyfunc.IP())))
//
// # Keys
//
// Key functions see a call as a request. Its headers are the metadata, and its HTTP method is POST. Its
// path is the full method, such as "/greet.v1.GreetService/Greet". If a service has this method, it is
// also the route. [keyfunc.User] finds what an interceptor further out has stored in the context.
//
// # Errors
//
// A call that is not served ends with one of these codes, unless [OnDenied] or [OnError] chooses another:
//
//	RESOURCE_EXHAUSTED           the call is denied. The status has errdetails.QuotaFailure and, if it is
//	                             known when to come back, errdetails.RetryInfo
//	UNAVAILABLE                  the limiter could not decide; the status has errdetails.RetryInfo
//	CANCELED, DEADLINE_EXCEEDED  the client has left, or the deadline of the call came first
//	INTERNAL                     the key function or guard.LimiterFor failed, or the limiter was used wrongly
//
// With [guard.NoHeaders], the status has neither QuotaFailure nor RetryInfo.
//
// # Metadata
//
// The headers about the limit are metadata, with names in lower case. A call that is served has them in its
// header, and any other call in its trailer, where clients find them together with the error.
//
// If RetryInfo is sent, the trailer also has grpc-retry-pushback-ms, which gRPC's own clients read: a
// client with a retry policy for the code waits that long before its next attempt, unless its deadline
// comes first. [guard.MaxRetryAfter] bounds this wait, too. If the call can never be admitted because its
// cost is above the limit, or if it ends with INTERNAL, the value is -1, and such a client does not try
// again. (With guard.NoHeaders, only a call that ends with INTERNAL has the trailer.) Clients without a retry
// policy ignore the trailer.
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

// framework makes the Guards, which decide. A Guard's Verdict has a Status as in HTTP: 0 means that the
// call is served; 429, 503, 500 and 499 mean that it is not, for the reason in Err. The Verdict also has
// the limiter's Result, and a Context if the call must be served with another one than its own. When the call
// ends, Guard.Finish is called with the code and the HTTP status that corresponds to it.
const framework = adapter.Adapter[*Call, func(context.Context, error) error]("grpclimit")

// Unary returns an interceptor for unary calls. For each call, key returns what the call is counted
// by, and lim decides.
//
// With a LeakyBucket, a call waits for its Delay. If the client leaves during the wait, the wait ends
// and the charge is refunded.
//
// If a call holds slots of [core.InFlight] and they are lost, the context of the call is canceled with the
// cause [core.ErrSlotLost]. If the handler then returns CANCELED, the client gets ABORTED instead, because the
// client did not cancel the call.
//
// Unary panics at once if lim or key is nil.
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

// Stream returns the interceptor for streams that corresponds to [Unary]. A stream is one call, whatever
// the number of its messages. The limiter decides when the stream begins, and the stream holds its slots
// until its handler returns. How many messages there will be is not known at the beginning: use
// [guard.CostAfter] and [SetCost] to charge for them.
//
// RecvMsg does not notice that slots are lost: a handler that waits for messages must watch the context of
// its stream.
func Stream(lim *core.Limiter, key keyfunc.Func, opts ...guard.Option) grpc.StreamServerInterceptor {
	l := newLimit(lim, key, opts)
	return func(server any, inner grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		q := newRequest(inner.Context(), Call{FullMethod: info.FullMethod, Server: server})
		return l.serve(q, func(ctx context.Context) error {
			return next(server, &stream{inner, ctx, q.state})
		})
	}
}

// OnDenied makes h return the error of denied calls. err is the error that the call has without h:
// status.Convert finds its code and details, and errors.As finds a *guard.DeniedError in it. [Result]
// returns the decision. If h returns nil, the error stays as it is.
func OnDenied(h func(ctx context.Context, err error) error) guard.AnswerOption {
	return framework.OnDenied(h)
}

// OnError is like [OnDenied], but for calls that are not served for any reason other than a denial. Their errors
// contain no *guard.DeniedError.
func OnError(h func(ctx context.Context, err error) error) guard.AnswerOption {
	return framework.OnError(h)
}

// CountIf is like [guard.CountIf], but decides by code: a call is counted only if it ends with a code for
// which count returns true. A panic is INTERNAL.
//
// guard.CountIf itself gets the HTTP status that gRPC-gateway would answer with: UNAUTHENTICATED is 401,
// RESOURCE_EXHAUSTED is 429.
func CountIf(count func(codes.Code) bool) guard.Option {
	if count == nil {
		return framework.CountIf(nil)
	}
	return framework.CountIf(func(code int) bool { return count(codes.Code(code)) })
}

// Key returns a key function that calls f with the call and its context. Add a prefix to the key, as in
// "tenant:"+id, so that it never equals a key of another kind. If f returns [keyfunc.ErrNoKey], the call is
// counted by a fallback, which [keyfunc.ErrNoKey] describes. If f returns any other error, the call ends
// with INTERNAL. Under the middleware of another adapter, the key function panics.
func Key(f func(context.Context, *Call) (string, error)) keyfunc.Func {
	return framework.ContextKey(f)
}

// Request returns a call as key functions see it, so that the function passed to [Key] can call other key
// functions, such as [keyfunc.IP].
func Request(ctx context.Context, call *Call) keyfunc.Request {
	return &request{ctx: ctx, call: *call, state: stateIn(ctx)}
}

// Result returns the decision about the call whose context is ctx. With stacked interceptors it is the
// tightest of their decisions, even if the interceptor that made this decision sets no headers. Result
// returns false if no limiter has decided.
func Result(ctx context.Context) (core.Result, bool) { return stateIn(ctx).guards().Result() }

// SetCost sets the true cost of the call whose context is ctx. When the call ends, the interceptors with
// [guard.CostAfter] charge n units; other interceptors ignore n. The last call of SetCost counts. A
// negative n is a mistake: it is logged, and the reserved units are charged.
func SetCost(ctx context.Context, n int64) { stateIn(ctx).guards().SetCost(n) }
