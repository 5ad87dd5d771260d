package suite_test

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/interop/grpc_testing"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	grpclimit "github.com/redislimit/redislimit/grpc"
	"github.com/redislimit/redislimit/internal/testkit/redisclient"
	"github.com/redislimit/redislimit/keyfunc"
)

// retryPolicy follows the documentation of grpc.io. Without a pushback, the four attempts take at most 0.7 s.
const retryPolicy = `{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 4, "initialBackoff": "0.1s", "maxBackoff": "1s",
	"backoffMultiplier": 2, "retryableStatusCodes": ["RESOURCE_EXHAUSTED", "UNAVAILABLE"]}}]}`

// A pushbackCase describes a server and the expected result of a call.
type pushbackCase struct {
	limiter  []core.Option
	plan     []core.Limit   // replaces the limits of limiter, if not empty
	before   int            // how many calls are served before the one that is checked
	options  []guard.Option // of the middleware
	code     codes.Code
	took     time.Duration // how long the calls take at least
	arrivals int64         // how often the call arrives at the server
	pushback string        // "-1", "none", or "" for any pushback
}

// TestPushback makes calls by a real client that has a retry policy, and by a client that has none: they must wait as long as the server says.
func TestPushback(t *testing.T) {
	t.Parallel()
	const wait = 1500 * time.Millisecond
	one := []core.Option{core.TokenBucket(core.Per(1, wait))}
	cost := guard.Cost(func(keyfunc.Request) int64 { return 5 })
	for name, c := range map[string]pushbackCase{
		"admitted":      {limiter: one, code: codes.OK, arrivals: 1, pushback: "none"},
		"denied":        {limiter: one, before: 1, code: codes.OK, took: wait, arrivals: 2, pushback: "none"},
		"never":         {limiter: one, options: []guard.Option{cost}, code: codes.ResourceExhausted, arrivals: 1, pushback: "-1"},
		"a limit of 0":  {limiter: one, plan: []core.Limit{core.FixedWindow(core.PerDay(0))}, code: codes.ResourceExhausted, arrivals: 1, pushback: "-1"},
		"unlimited":     {limiter: one, plan: []core.Limit{core.Unlimited()}, before: 3, code: codes.OK, arrivals: 1, pushback: "none"},
		"Redis is away": {limiter: nil, code: codes.Unavailable, took: 3 * time.Second, arrivals: 4},
		"bounded": {
			limiter: []core.Option{core.FixedWindow(core.PerMinute(1))}, before: 1, options: []guard.Option{guard.MaxRetryAfter(time.Second)},
			code: codes.ResourceExhausted, took: 3 * time.Second, arrivals: 4,
		},
		"no headers": {
			limiter: []core.Option{core.FixedWindow(core.PerDay(1))}, before: 1, options: []guard.Option{guard.NoHeaders()},
			code: codes.ResourceExhausted, arrivals: 4, pushback: "none",
		},
	} {
		for _, how := range []string{"interceptor", "Answerer", "Answerer alone"} {
			if how != "interceptor" && c.options != nil {
				continue
			}
			for _, stream := range []bool{false, true} {
				t.Run(name+"/"+how+map[bool]string{true: "/Stream", false: "/Unary"}[stream], func(t *testing.T) {
					t.Parallel()
					testPushback(t, &c, how, stream)
				})
			}
		}
	}
}

func testPushback(t *testing.T, c *pushbackCase, how string, stream bool) {
	t.Helper()
	lim := pushbackLimiter(t, c.limiter)
	if c.plan != nil {
		lim = with(t, lim, c.plan...)
	}
	var arrivals atomic.Int64
	b := &testbed{T: t, stream: stream, serve: func(context.Context, func()) error { return nil }}
	options := around(func(ctx context.Context, next func(context.Context) error) error { arrivals.Add(1); return next(ctx) })
	switch answerer := grpclimit.NewAnswerer(); how {
	case "interceptor":
		options = append(options, grpc.ChainUnaryInterceptor(grpclimit.Unary(lim, keyfunc.IP(), c.options...)),
			grpc.ChainStreamInterceptor(grpclimit.Stream(lim, keyfunc.IP(), c.options...)))
	case "Answerer":
		options = append(options, sending(answerer)...)
		fallthrough
	default:
		b.serve = func(ctx context.Context, _ func()) error {
			res, err := lim.Allow(ctx, ipKey)
			return answerer.Answer(ctx, res, err)
		}
	}
	server := grpc.NewServer(options...)
	grpc_testing.RegisterTestServiceServer(server, &service{b: b})
	addr := serveOn(t, server)
	b.app = grpc_testing.NewTestServiceClient(dial(t, addr, grpc.WithDefaultServiceConfig(retryPolicy)))
	began := time.Now()
	for range c.before {
		a := b.call()
		a.want(codes.OK)
	}
	arrivals.Store(0)
	a := b.call()
	a.want(c.code)
	if took := time.Since(began); took < c.took || arrivals.Load() != c.arrivals {
		t.Errorf("the calls took %v with %d arrivals, want %v or more with %d", took, arrivals.Load(), c.took, c.arrivals)
	}
	switch got := strings.Join(a.trailer.Get("grpc-retry-pushback-ms"), ","); {
	case c.pushback == "" && got != "", c.pushback == "none" && got == "", c.pushback == got:
	default:
		t.Errorf("got the pushback %q, want %q", got, c.pushback)
	}
	if c.code == codes.OK {
		return
	}
	b.app = grpc_testing.NewTestServiceClient(dial(t, addr)) // a client without a retry policy gets the same code at once
	arrivals.Store(0)
	a = b.call()
	a.want(c.code)
	if arrivals.Load() != 1 {
		t.Errorf("%d arrivals without a retry policy, want 1", arrivals.Load())
	}
}

// pushbackLimiter returns a limiter in memory, or, without options, a limiter whose Redis does not answer.
func pushbackLimiter(t *testing.T, opts []core.Option) *core.Limiter {
	t.Helper()
	if opts != nil {
		return core.MustNewMemory("api", opts...)
	}
	client := redisclient.New(t, &redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	lim := core.MustNew(client, "api", core.TokenBucket(core.PerMinute(1)), core.FailClosed(), core.Logger(slog.New(slog.DiscardHandler)))
	t.Cleanup(func() { _ = lim.Close() })
	return lim
}
