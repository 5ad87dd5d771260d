package suite_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	grpclimit "github.com/redislimit/redislimit/grpc"
	"github.com/redislimit/redislimit/internal/inside"
	"github.com/redislimit/redislimit/keyfunc"
)

// recovers returns interceptors that turn a panic into INTERNAL, like those of go-grpc-middleware.
func recovers() []grpc.ServerOption {
	return around(func(ctx context.Context, next func(context.Context) error) (err error) {
		defer func() {
			if r := recover(); r != nil {
				err = status.Error(codes.Internal, fmt.Sprint(r))
			}
		}()
		return next(ctx)
	})
}

// TestCountIf ends calls in each way: CountIf must get the code that the client gets, and guard.CountIf the HTTP status that gRPC-Gateway
// would answer with.
func TestCountIf(t *testing.T) {
	statuses := map[codes.Code]int{
		codes.OK: 200, codes.Canceled: 499, codes.Unknown: 500, codes.InvalidArgument: 400, codes.DeadlineExceeded: 504, codes.NotFound: 404,
		codes.AlreadyExists: 409, codes.PermissionDenied: 403, codes.ResourceExhausted: 429, codes.FailedPrecondition: 400, codes.Aborted: 409,
		codes.OutOfRange: 400, codes.Unimplemented: 501, codes.Internal: 500, codes.Unavailable: 503, codes.DataLoss: 500, codes.Unauthenticated: 401,
	}
	each(t, func(b *testbed) {
		ends := map[string]func() error{
			"error":    func() error { return errors.New("of the handler") },
			"wrapped":  func() error { return fmt.Errorf("wrapped: %w", status.Error(codes.NotFound, "not here")) },
			"canceled": func() error { return context.Canceled },
			"late":     func() error { return fmt.Errorf("wrapped: %w", context.DeadlineExceeded) },
			"panic":    func() error { panic("early") },
			"unknown":  func() error { return status.Error(99, "a code of tomorrow") },
		}
		for code := range statuses {
			ends[code.String()] = func() error { return status.Error(code, "of the handler") }
		}
		var end func() error
		b.serve = func(context.Context, func()) error { return end() }
		var sawCode codes.Code
		var sawStatus int
		byCode, byStatus := b.limiter("code", core.FixedWindow(core.PerDay(1000))), b.limiter("status", core.FixedWindow(core.PerDay(1000)))
		b.start(recovers(),
			by(byCode, grpclimit.CountIf(func(code codes.Code) bool { sawCode = code; return code == codes.Unauthenticated })),
			by(byStatus, guard.CountIf(func(status int) bool { sawStatus = status; return status == 409 })))
		for name, f := range ends {
			end = f
			a := b.call()
			want, ok := statuses[a.code]
			if !ok {
				want = 500
			}
			if sawCode != a.code || sawStatus != want {
				b.Errorf("%s: CountIf got %v and %d, want %v, the client's code, and its status %d", name, sawCode, sawStatus, a.code, want)
			}
			if len(a.header.Get("x-ratelimit-limit")) != 1 || len(a.trailer.Get("x-ratelimit-limit")) != 0 {
				b.Errorf("%s: got the header %v and the trailer %v, want the limit in the header only", name, a.header, a.trailer)
			}
		}
		untilLeft(b.T, byCode, ipKey, 999)
		untilLeft(b.T, byStatus, ipKey, 998)
	})
}

// estimate returns an option that reserves n units for each call.
func estimate(n int64) guard.Option { return guard.Cost(func(keyfunc.Request) int64 { return n }) }

// TestInnerRefuses makes an inner limit deny a call, and fail to decide on another. An outer limit that counts only some codes must not
// charge calls that reached no handler, but it must charge a call whose handler returned UNAVAILABLE.
func TestInnerRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		outer  guard.Option
		denial int64 // how much the outer limit charges for a call that the inner limit denies
	}{
		"CountIf":       {grpclimit.CountIf(func(code codes.Code) bool { return code != codes.ResourceExhausted }), 0},
		"CountIfStatus": {guard.CountIf(func(status int) bool { return status != 429 }), 0},
		"CostAfter":     {guard.CostAfter(), 1},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(b *testbed) {
				var busy bool
				b.serve = func(context.Context, func()) error {
					if busy {
						return status.Error(codes.Unavailable, "of the handler")
					}
					return nil
				}
				shared := core.MustNewMemory("shared", core.FixedWindow(core.PerDay(9)))
				// As an application may, return another code than UNAVAILABLE for an outage.
				own := grpclimit.OnError(func(context.Context, error) error { return status.Error(codes.Aborted, "later") })
				b.behind(by(shared, c.outer), by(b.fixed(2), own))
				b.call().want(codes.OK)
				busy = true
				b.call().want(codes.Unavailable)
				untilLeft(b.T, shared, ipKey, 7)
				b.call().want(codes.ResourceExhausted)
				b.redis.SetError("LOADING")
				for range 3 {
					b.call().want(codes.Aborted)
				}
				b.stop()
				untilLeft(b.T, shared, ipKey, 7-c.denial)
			})
		})
	}
}

// TestInFlight checks that a call holds its slot until it ends, in whatever way it ends.
func TestInFlight(t *testing.T) {
	each(t, func(b *testbed) {
		running, goOn := make(chan error), make(chan func() error)
		b.serve = func(ctx context.Context, send func()) error {
			send()
			running <- ctx.Err()
			return (<-goOn)()
		}
		lim := b.limiter("api", core.InFlight(1, core.SlotTTL(time.Hour)), core.FixedWindow(core.PerDay(9)))
		b.start(recovers(), by(lim))
		for i, end := range []func() error{
			func() error { return nil },
			func() error { return errors.New("of the handler") },
			func() error { panic("early") },
		} {
			var first answer
			var calls sync.WaitGroup
			calls.Go(func() { first = b.call() })
			if err := <-running; err != nil {
				b.Errorf("in the handler, the context has the error %v, want none", err)
			}
			denied := b.call()
			denied.want(codes.ResourceExhausted)
			denied.wantDetails(`api: limit "inflight" of 1 exceeded; retry in 1s`)
			goOn <- end
			calls.Wait()
			first.want([]codes.Code{codes.OK, codes.Unknown, codes.Internal}[i])
			untilLeft(b.T, lim, ipKey, 1, int64(8-i))
		}
	})
}

// TestSlotsLost removes slots from Redis while a call runs: the handler's context must end, and its cause say why. The client must get an
// error that does not look as if the client itself had canceled the call.
func TestSlotsLost(t *testing.T) {
	for want, returns := range map[codes.Code]func(context.Context) error{
		codes.Aborted:  context.Context.Err,
		codes.DataLoss: func(ctx context.Context) error { return status.Error(codes.DataLoss, context.Cause(ctx).Error()) },
	} {
		t.Run(want.String(), func(t *testing.T) { slotsLost(t, want, returns) })
	}
}

func slotsLost(t *testing.T, want codes.Code, returns func(context.Context) error) {
	t.Helper()
	each(t, func(b *testbed) {
		running := make(chan struct{})
		var cause error
		b.serve = func(ctx context.Context, _ func()) error {
			close(running)
			<-ctx.Done()
			cause = context.Cause(ctx)
			return returns(ctx)
		}
		lim := b.limiter("api", core.InFlight(1, core.SlotTTL(time.Hour)), core.FixedWindow(core.PerDay(9)))
		var counted codes.Code
		b.behind(by(lim, grpclimit.CountIf(func(code codes.Code) bool { counted = code; return true })))
		var a answer
		var calls sync.WaitGroup
		calls.Go(func() { a = b.call() })
		<-running
		b.redis.FlushAll()
		inside.Core.Driver(lim).Renew()
		calls.Wait()
		b.stop()
		a.want(want)
		if !errors.Is(cause, core.ErrSlotLost) || counted != want {
			b.Errorf("the handler's context ended with %v, and CountIf got %v; want ErrSlotLost and %v", cause, counted, want)
		}
		untilLeft(b.T, lim, ipKey, 1, 8) // the call is charged, although Redis has lost its slot
	})
}

// TestLeftInQueue makes a client leave before its turn in a queue: its place must be given back.
func TestLeftInQueue(t *testing.T) {
	each(t, func(b *testbed) {
		var decided, served atomic.Int64
		b.serve = func(context.Context, func()) error { served.Add(1); return nil }
		lim := b.limiter("api", core.LeakyBucket(core.Per(1, patience/2), core.Burst(3)), core.Observe(func(_ context.Context, e core.Event) {
			if e.Kind == core.EventDecision {
				decided.Add(1)
			}
		}))
		b.behind(by(lim))
		b.call().want(codes.OK)
		ctx, leave := context.WithCancel(b.Context())
		var calls sync.WaitGroup
		calls.Go(func() { b.callIn(ctx).want(codes.Canceled) })
		for decided.Load() < 2 {
			time.Sleep(time.Millisecond)
		}
		wantLeft(b.T, lim, ipKey, 1)
		leave()
		calls.Wait()
		untilLeft(b.T, lim, ipKey, 2)
		b.stop()
		if n := served.Load(); n != 1 {
			b.Errorf("%d calls were served, want 1: the client of the other one left", n)
		}
	})
}

// TestLeft checks the error of a call whose client left before the call was served. If a deadline ends the call, a server often receives the
// client's reset first, so the test calls the interceptor without a server.
func TestLeft(t *testing.T) {
	lim := core.MustNewMemory("api", core.LeakyBucket(core.Per(1, time.Hour), core.Burst(3)))
	limited := grpclimit.Unary(lim, keyfunc.IP())
	call := func(ctx context.Context) error {
		_, err := limited(ctx, nil, &grpc.UnaryServerInfo{FullMethod: unaryMethod}, func(context.Context, any) (any, error) { return "served", nil })
		return err
	}
	if err := call(t.Context()); err != nil {
		t.Fatal(err)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancelLate := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancelLate()
	for want, ctx := range map[codes.Code]context.Context{codes.Canceled: canceled, codes.DeadlineExceeded: late} {
		if err := call(ctx); status.Code(err) != want || !errors.Is(err, ctx.Err()) || len(status.Convert(err).Details()) > 0 {
			t.Errorf("got the error %#v, want %v for %v, without details", err, want, ctx.Err())
		}
	}
	wantLeft(t, lim, "ip:unix", 2)
}
