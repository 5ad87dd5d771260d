package grpclimit

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/core/guard/adapter"
)

// An Answerer answers calls for handlers that call a limiter themselves. A handler does so if only the
// handler knows what to count, such as the number of rows that a query reads or the messages of a stream.
//
//	var limit = grpclimit.NewAnswerer()
//
//	func (s *server) Export(ctx context.Context, query *pb.Query) (*pb.Rows, error) {
//		res, err := rows.AllowN(ctx, query.Account, query.Rows)
//		if err := limit.Answer(ctx, res, err); err != nil {
//			return nil, err
//		}
//		// ... serve it
//	}
//
// An Answerer is safe for concurrent use. One is enough for all handlers.
type Answerer struct {
	answerer *adapter.Answerer
	handlers errorHandlers
}

// NewAnswerer returns an Answerer. Its options control headers and answers, such as [guard.Headers],
// [guard.RetryJitter] and [OnDenied]. Like [Unary], NewAnswerer panics at once if an option is wrong.
func NewAnswerer(opts ...guard.AnswerOption) *Answerer {
	answerer, handlers := framework.NewAnswerer(opts...)
	return &Answerer{answerer, handlers}
}

// Answer returns the error with which the handler must end a call that must not be served, which is the
// error that [Unary] would return. It returns nil if the call is admitted. Pass both values that the call
// of package core returned: the decision, which is a [core.Result], a [*core.Permit] or a
// [*core.Reservation], and the error. After an error, the Permit or the Reservation is nil.
//
//   - If the call is denied, the code is RESOURCE_EXHAUSTED, with QuotaFailure, RetryInfo and the
//     trailer grpc-retry-pushback-ms. The handler of [OnDenied] can replace the error.
//     [core.ErrNeverAdmitted] counts as a denial, but has neither details nor this trailer.
//   - If the limiter could not decide, because Redis did not answer, the code is UNAVAILABLE. If
//     the deadline of the call has passed, the code is DEADLINE_EXCEEDED. If the client has left,
//     it is CANCELED. Any other error, such as an empty key, is a mistake in the application: the
//     code is INTERNAL, and the error is logged at most once a minute. In all these cases, the
//     handler of [OnError] can replace the error.
//   - If the call is admitted, Answer only sets the headers about the limit, which are metadata.
//
// If the call passed an interceptor of this package ([Unary], [Stream], [Answerer.Unary] or
// [Answerer.Stream]), the headers and [Result] describe the tightest of all decisions about the call.
// Without an interceptor, only a call that is not served has headers, in its trailer. A stream has the
// headers that were set before its first message.
//
// Answer does not wait. To wait for the Delay of a [core.LeakyBucket], use [core.Limiter.Wait].
func (a *Answerer) Answer(ctx context.Context, decision core.Decision, err error) error {
	s := stateIn(ctx)
	if s == nil {
		s = &state{header: metadata.MD{}}
		ctx = context.WithValue(ctx, stateKey{}, s) // for OnDenied
		defer func() {
			if refused := s.refused.Load(); refused != nil {
				if refused.pushback != "" {
					s.header.Set(pushbackKey, refused.pushback)
				}
				_ = grpc.SetTrailer(ctx, s.header) // fails only without a transport
			}
		}()
	}
	verdict := a.answerer.Answer(ctx, s, s.guards(), decision, err)
	if verdict.Status == 0 {
		return nil
	}
	return refuse(ctx, s, verdict, a.answerer.RetryIn(verdict), a.handlers)
}

// Unary returns an interceptor that sends the headers which [Answerer.Answer] sets. Calls that pass the
// interceptor [Unary] of a limiter do not need it.
func (*Answerer) Unary() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, message any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (reply any, err error) {
		q := newRequest(ctx, Call{FullMethod: info.FullMethod, Server: info.Server, Message: message})
		if q.isOutermost() {
			defer func() { q.state.send(q.ctx, err) }()
		}
		return next(q.ctx, message)
	}
}

// Stream returns the interceptor for streams that corresponds to [Answerer.Unary].
func (*Answerer) Stream() grpc.StreamServerInterceptor {
	return func(server any, inner grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
		q := newRequest(inner.Context(), Call{FullMethod: info.FullMethod, Server: server})
		if q.isOutermost() {
			defer func() { q.state.send(q.ctx, err) }()
		}
		return next(server, &stream{inner, q.ctx, q.state})
	}
}
