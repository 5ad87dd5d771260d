package grpclimit

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/core/guard/adapter"
)

// An Answerer answers calls for a handler that asks a limiter itself. That is the right place for a
// limit by what only the handler knows, such as the rows that a query will read, or the messages of
// a stream.
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
// An Answerer is safe for concurrent use; one is enough for all handlers.
type Answerer struct {
	answerer *adapter.Answerer
	handlers errorHandlers
}

// NewAnswerer returns an Answerer with options such as [guard.Headers], [guard.RetryJitter] and
// [OnDenied]. Like [Unary], it panics at once if an option is wrong.
func NewAnswerer(opts ...guard.AnswerOption) *Answerer {
	answerer, handlers := framework.NewAnswerer(opts...)
	return &Answerer{answerer, handlers}
}

// Answer returns the error with which the handler must end the call, just as [Unary] ends it, or nil
// if the call is to be served. The handler passes on what a function or method of package core
// returned, both values: a [core.Result], or a [*core.Reservation], which may be nil, and the error.
//
//   - The call is denied: RESOURCE_EXHAUSTED with QuotaFailure and RetryInfo, or what [OnDenied]
//     makes of it.
//   - The limiter could not decide, because Redis did not answer: UNAVAILABLE. The deadline of the
//     call passed: DEADLINE_EXCEEDED. The client has left: CANCELED. Another error, such as an empty
//     key, is a mistake: INTERNAL, and it is logged, at most once a minute. [OnError] is for all of
//     them.
//   - The call is admitted: Answer only sets the headers about the limit, which are metadata.
//
// Headers and [Result] have the tightest of all decisions about a call: those of interceptors and
// those of several calls of Answer. For that the call must pass an interceptor of this package:
// [Unary], [Stream], [Answerer.Unary] or [Answerer.Stream]. Without one only a call that is refused
// has headers, in its trailer. In a stream, headers are those of the decisions before its first
// message.
//
// Answer does not wait: for the Delay of a [core.LeakyBucket], use [core.Limiter.Wait].
func (a *Answerer) Answer(ctx context.Context, decision core.Decision, err error) error {
	s := stateIn(ctx)
	if s == nil {
		s = &state{header: metadata.MD{}}
		ctx = context.WithValue(ctx, stateKey{}, s) // for OnDenied
		defer func() {
			if s.refused.Load() != nil {
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

// Unary returns an interceptor that sends the headers which calls of [Answerer.Answer] set. Behind
// the [Unary] of a limiter it is not needed.
func (*Answerer) Unary() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, message any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (reply any, err error) {
		q := newRequest(ctx, Call{FullMethod: info.FullMethod, Server: info.Server, Message: message})
		if q.isOutermost() {
			defer func() { q.state.send(q.ctx, err) }()
		}
		return next(q.ctx, message)
	}
}

// Stream is [Answerer.Unary] for streams.
func (*Answerer) Stream() grpc.StreamServerInterceptor {
	return func(server any, inner grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
		q := newRequest(inner.Context(), Call{FullMethod: info.FullMethod, Server: server})
		if q.isOutermost() {
			defer func() { q.state.send(q.ctx, err) }()
		}
		return next(server, &stream{inner, q.ctx, q.state})
	}
}
