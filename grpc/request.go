package grpclimit

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/redislimit/redislimit/core/guard/adapter"
)

// A Call is what Unwrap of a [keyfunc.Request] returns in this package:
//
//	guard.Cost(func(r keyfunc.Request) int64 {
//		batch, ok := r.Unwrap().(*grpclimit.Call).Message.(*pb.Batch)
//		...
type Call struct {
	FullMethod string // for example "/greet.v1.GreetService/Greet"
	Server     any    // the service, or nil if no service has the method; see grpc.UnknownServiceHandler
	Message    any    // the request of a unary call; nil for a stream
}

// A request presents a call to key functions. It has room for a state, so that the two take one allocation.
type request struct {
	ctx   context.Context //nolint:containedctx // it is that of the call
	call  Call
	state *state // the state of the call, which all interceptors share
	made  state  // what state points to in the outermost interceptor
}

func (q *request) Context() context.Context { return q.ctx }
func (q *request) Method() string           { return "POST" } // as in HTTP/2
func (q *request) Path() string             { return q.call.FullMethod }
func (q *request) Query(string) string      { return "" }
func (q *request) Value(key any) any        { return q.ctx.Value(key) }
func (q *request) Unwrap() any              { return &q.call }
func (q *request) Logger() *slog.Logger     { return q.state.guards().Logger() }

// Route returns the full method. If no service has the method, Route returns "", because the client may have
// invented it.
func (q *request) Route() string {
	if q.call.Server == nil {
		return ""
	}
	return q.call.FullMethod
}

func (q *request) RemoteAddr() string {
	if p, ok := peer.FromContext(q.ctx); ok && p.Addr != nil {
		return p.Addr.String()
	}
	return ""
}

// Cookie reads the metadata "cookie", which proxies for gRPC-Web forward.
func (q *request) Cookie(name string) string {
	c, err := (&http.Request{Header: http.Header{"Cookie": q.HeaderValues("cookie")}}).Cookie(name)
	if err != nil {
		return ""
	}
	return c.Value
}

func (q *request) Header(name string) string { return first(q.HeaderValues(name)) }

func (q *request) HeaderValues(name string) []string {
	return metadata.ValueFromIncomingContext(q.ctx, name)
}

func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

// A state is what the interceptors of one call, and the calls of [Answerer.Answer] by its handler, share.
type state struct {
	adapter.RequestState

	refused atomic.Pointer[refusal] // how the innermost interceptor, or an Answerer, refused the call

	headerMu sync.Mutex  // needed because a stream may have several goroutines
	header   metadata.MD // the headers about the limit; guarded by headerMu
	sent     bool        // whether header was sent; guarded by headerMu
}

// stateKey is the key of the state in a call's context.
type stateKey struct{}

// stateIn returns the state of the call whose context is ctx, or nil before the first interceptor.
func stateIn(ctx context.Context) *state {
	s, _ := ctx.Value(stateKey{}).(*state)
	return s
}

// guards returns what the Guards of the call share, or nil before the first interceptor.
func (s *state) guards() *adapter.RequestState {
	if s == nil {
		return nil
	}
	return &s.RequestState
}

// newRequest returns the request of a call, with the call's state or a new one.
func newRequest(ctx context.Context, call Call) *request {
	q := &request{ctx: ctx, call: call, state: stateIn(ctx)}
	if q.state == nil {
		q.state = &q.made
		q.state.header = metadata.MD{}
		q.ctx = context.WithValue(ctx, stateKey{}, q.state)
	}
	return q
}

// isOutermost reports whether the interceptor that made q is the outermost one of this package.
func (q *request) isOutermost() bool { return q.state == &q.made }

// Get, Set and Del make state implement adapter.Header. They have no effect after the header was sent.

func (s *state) Get(name string) string {
	s.headerMu.Lock()
	defer s.headerMu.Unlock()
	return first(s.header.Get(name))
}

func (s *state) Set(name, value string) {
	if name == "Cache-Control" { // caches do not store responses of gRPC
		return
	}
	s.headerMu.Lock()
	defer s.headerMu.Unlock()
	s.header.Set(name, value)
}

func (s *state) Del(name string) {
	s.headerMu.Lock()
	defer s.headerMu.Unlock()
	s.header.Delete(name)
}

// send sends the headers once: before the first message, or together with the status err. The headers of a
// call that is not served go into the trailer: clients find them there with the error, and a header would
// end their retries (gRFC A6).
func (s *state) send(ctx context.Context, err error) {
	s.headerMu.Lock()
	defer s.headerMu.Unlock()
	refused := s.refused.Load()
	if refused != nil && refused.pushback != "" && err != nil && codeOf(err) == refused.code {
		s.header.Set(pushbackKey, refused.pushback)
	}
	if len(s.header) == 0 || s.sent {
		return
	}
	s.sent = true
	if refused != nil && err != nil || grpc.SetHeader(ctx, s.header) != nil { // the handler may have sent a header
		_ = grpc.SetTrailer(ctx, s.header) // fails only without a transport, as in a test of the handler
	}
}

// A stream is the stream that the handler gets. It sends the headers before its first message.
type stream struct {
	grpc.ServerStream

	ctx   context.Context //nolint:containedctx // it is that of the stream
	state *state
}

func (s *stream) Context() context.Context { return s.ctx }

func (s *stream) SendHeader(md metadata.MD) error {
	s.state.send(s.ctx, nil)
	return s.ServerStream.SendHeader(md)
}

func (s *stream) SendMsg(m any) error {
	s.state.send(s.ctx, nil)
	return s.ServerStream.SendMsg(m)
}
