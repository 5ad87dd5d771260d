package grpclimit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/core/guard/adapter"
	"github.com/redislimit/redislimit/keyfunc"
)

// A limit is one interceptor of a limiter.
type limit struct {
	guard    *adapter.Guard
	handlers errorHandlers
}

// errorHandlers are the application's functions that replace the errors of calls that are not served.
type errorHandlers = adapter.Handlers[func(context.Context, error) error]

func newLimit(lim *core.Limiter, key keyfunc.Func, opts []guard.Option) *limit {
	g, handlers := framework.New(lim, key, opts...)
	return &limit{g, handlers}
}

// serve decides about a call, and calls next to serve it.
func (l *limit) serve(q *request, next func(context.Context) error) (err error) {
	if q.isOutermost() { // when next returns, all interceptors have decided
		defer func() { q.state.send(q.ctx, err) }()
	}
	v := l.guard.Check(q, q.state, q.state.guards())
	switch {
	case v.Status != 0:
		return refuse(q.ctx, q.state, v, l.guard.RetryIn(v), l.handlers)
	case !l.guard.NeedsFinish(v):
		return next(q.ctx)
	}
	ctx, code := q.ctx, codes.Internal // of a panic
	if v.Context != nil {
		ctx = v.Context
	}
	defer func() {
		v.Code = int(code)
		l.guard.Finish(q.ctx, v, q.state.statusOf(code))
	}()
	err = next(ctx)
	code = codeOf(err)
	if code == codes.Canceled && errors.Is(context.Cause(ctx), core.ErrSlotLost) { // the client has not canceled the call
		code, err = codes.Aborted, status.Error(codes.Aborted, "the rate limiter's slot was lost")
	}
	return err
}

// A refusal is the error of a call that is not served.
type refusal struct {
	status *status.Status
	err    error // the reason
	code   codes.Code
	http   int // the status of the Verdict

	pushback string // the value of pushbackKey, or "" for none
}

// Error returns only what the status says: if an interceptor wraps the error, gRPC sends its text to the
// client.
func (r *refusal) Error() string              { return r.status.String() }
func (r *refusal) Unwrap() error              { return r.err }
func (r *refusal) GRPCStatus() *status.Status { return r.status }

// refuse returns the error of a call that is not served because of the Verdict v. The client may come back
// after retryIn.
func refuse(ctx context.Context, s *state, v adapter.Verdict, retryIn time.Duration, handlers errorHandlers) error {
	r := &refusal{err: v.Err, http: v.Status, pushback: pushbackOf(ctx, v, retryIn)}
	r.status = refusedStatus(ctx, v, retryIn)
	var err error = r
	if handler, ok := handlers.For(v); ok {
		if own := handler(ctx, err); own != nil {
			err = own
		}
	}
	r.code = codeOf(err)
	s.refused.Store(r)
	return err
}

// pushbackKey is the key of a trailer for clients with a retry policy (gRFC A6). Its value says after how
// many milliseconds such a client may try again; a negative value says that it must not. Without the
// trailer, such a client chooses its own delays: it does not read RetryInfo.
const pushbackKey = "grpc-retry-pushback-ms"

// pushbackOf returns the value of pushbackKey for a call that is not served because of the Verdict v. It
// returns "" if the trailer must not be sent, for example for a denial with NoHeaders. It returns "-1" if no
// wait helps: the call can never be admitted, or the application has made a mistake.
func pushbackOf(ctx context.Context, v adapter.Verdict, retryIn time.Duration) string {
	denied := (*guard.DeniedError)(nil)
	isNever := errors.As(v.Err, &denied) && !denied.Hidden && denied.Result.RetryAfter == core.Never
	switch {
	case ctx.Err() != nil: // the call is over for its client
		return ""
	case retryIn > 0:
		return strconv.FormatInt((retryIn + time.Millisecond - 1).Milliseconds(), 10)
	case isNever || v.Status == http.StatusInternalServerError:
		return "-1"
	}
	return ""
}

// refusedStatus returns the status of a call that is not served. The message never contains the text of an
// error, which may contain secrets.
func refusedStatus(ctx context.Context, v adapter.Verdict, retryIn time.Duration) *status.Status {
	s := status.New(codes.Internal, "the rate limiter failed")
	var details []protoadapt.MessageV1
	switch denied := (*guard.DeniedError)(nil); {
	case v.Status == http.StatusTooManyRequests:
		s = status.New(codes.ResourceExhausted, "too many requests")
		if errors.As(v.Err, &denied) && !denied.Hidden {
			details = append(details, quotaFailure(&denied.Result))
		}
	case v.Status == adapter.StatusClientGone, v.Status == http.StatusServiceUnavailable && errors.Is(ctx.Err(), context.Canceled):
		return status.New(codes.Canceled, "the client has left")
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return status.New(codes.DeadlineExceeded, "the deadline came before the rate limiter's decision")
	case v.Status == http.StatusServiceUnavailable:
		s = status.New(codes.Unavailable, "the rate limiter is unavailable")
	}
	if retryIn > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(retryIn)})
	}
	if detailed, err := s.WithDetails(details...); err == nil {
		return detailed
	}
	return s
}

// quotaFailure lists the limits that denied: the Subject is the name of the limiter, and the Description has the
// name of the limit or says that the key is banned. A limiter that has banned the key is listed even if all its
// limits are Unlimited.
func quotaFailure(res *core.Result) *errdetails.QuotaFailure {
	failure := &errdetails.QuotaFailure{}
	for each := range res.All() {
		if each.Allowed {
			continue
		}
		description := fmt.Sprintf("limit %q of %d exceeded", each.LimitName, each.Limit)
		if res.Banned {
			description = "banned"
		}
		failure.Violations = append(failure.Violations, &errdetails.QuotaFailure_Violation{Subject: each.LimiterName, Description: description})
	}
	return failure
}

// codeOf returns the code with which a server ends a call whose handler returned err.
func codeOf(err error) codes.Code {
	if s, ok := status.FromError(err); ok {
		return s.Code()
	}
	return status.FromContextError(err).Code()
}

// statusOf returns the HTTP status that corresponds to the code with which the call ends. If an interceptor
// further in, or an Answerer, has refused the call with this code, statusOf returns the status of the Verdict.
// Guard.Finish compares this status with the one that the inner Guard recorded, and so notices that no handler
// has run.
func (s *state) statusOf(code codes.Code) int {
	if refused := s.refused.Load(); refused != nil && refused.code == code {
		return refused.http
	}
	if status, ok := statuses[code]; ok {
		return status
	}
	return http.StatusInternalServerError
}

// statuses has the HTTP statuses of gRPC-gateway. Any other code corresponds to 500.
var statuses = map[codes.Code]int{
	codes.OK:                 http.StatusOK,
	codes.Canceled:           adapter.StatusClientGone,
	codes.InvalidArgument:    http.StatusBadRequest,
	codes.DeadlineExceeded:   http.StatusGatewayTimeout,
	codes.NotFound:           http.StatusNotFound,
	codes.AlreadyExists:      http.StatusConflict,
	codes.PermissionDenied:   http.StatusForbidden,
	codes.ResourceExhausted:  http.StatusTooManyRequests,
	codes.FailedPrecondition: http.StatusBadRequest,
	codes.Aborted:            http.StatusConflict,
	codes.OutOfRange:         http.StatusBadRequest,
	codes.Unimplemented:      http.StatusNotImplemented,
	codes.Unavailable:        http.StatusServiceUnavailable,
	codes.Unauthenticated:    http.StatusUnauthorized,
}
