package suite_test

import (
	"context"
	"net"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	grpclimit "github.com/redislimit/redislimit/grpc"
	"github.com/redislimit/redislimit/keyfunc"
)

type userKey struct{}

// authenticated returns interceptors that store the user from the metadata "user" in the context.
func authenticated() []grpc.ServerOption {
	return around(func(ctx context.Context, next func(context.Context) error) error {
		if user := metadata.ValueFromIncomingContext(ctx, "user"); len(user) > 0 {
			ctx = context.WithValue(ctx, userKey{}, user[0])
		}
		return next(ctx)
	})
}

// TestKeys checks keys that gRPC takes from other places than HTTP does. TestClients checks keys from metadata.
func TestKeys(t *testing.T) {
	for name, c := range map[string]struct {
		key   keyfunc.Func
		pairs []string
		want  string // "": the key of the method's route
	}{
		"IP":           {keyfunc.IP(), []string{"x-forwarded-for", "192.0.2.1"}, ipKey},
		"Header":       {keyfunc.Header("X-Tenant"), []string{"X-Tenant", "acme"}, keyfunc.ForHeader("X-Tenant", "acme")},
		"TwoLines":     {keyfunc.IP(keyfunc.TrustedHops(2)), []string{"x-forwarded-for", "192.0.2.7", "x-forwarded-for", "192.0.2.8"}, "ip:192.0.2.7"},
		"User":         {keyfunc.User(userKey{}), []string{"user", "alice"}, keyfunc.ForUser("alice")},
		"NoUser":       {keyfunc.User(userKey{}), nil, peerKey},
		"Route":        {keyfunc.Route(), nil, ""},
		"Method":       {keyfunc.Method(), nil, "method:POST"},
		"Global":       {keyfunc.Global(), nil, "global"},
		"Native":       {grpclimit.Key(native), []string{"user", "bob"}, "user bob of /grpc.testing.TestService/"},
		"NativeNone":   {grpclimit.Key(native), nil, peerKey},
		"NativeWithin": {grpclimit.Key(within), []string{"user", "bob"}, "bob, " + ipKey},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(b *testbed) {
				lim := b.fixed(2)
				b.start(authenticated(), mount{lim, c.key, nil})
				b.call(c.pairs...).want(codes.OK)
				want := c.want
				if want == "" {
					want = keyfunc.ForRoute(map[bool]string{false: unaryMethod, true: streamMethod}[b.stream])
				}
				wantLeft(b.T, lim, want, 1)
			})
		})
	}
}

// native is a key function that reads the gRPC call itself.
func native(ctx context.Context, call *grpclimit.Call) (string, error) {
	user, _ := ctx.Value(userKey{}).(string)
	if user == "" {
		return "", keyfunc.ErrNoKey
	}
	if _, ok := call.Server.(*service); !ok {
		return "", core.ErrInvalidKey
	}
	return "user " + user + " of " + call.FullMethod[:len("/grpc.testing.TestService/")], nil
}

// within is a key function that calls another key function.
func within(ctx context.Context, call *grpclimit.Call) (string, error) {
	address, err := keyfunc.IP()(grpclimit.Request(ctx, call))
	return ctx.Value(userKey{}).(string) + ", " + address, err
}

// TestUnixSocket calls from a peer that has no address: its key must be "ip:unix".
func TestUnixSocket(t *testing.T) {
	lim := core.MustNewMemory("api", core.FixedWindow(core.PerMinute(2)))
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(grpclimit.Unary(lim, keyfunc.IP())))
	grpc_testing.RegisterTestServiceServer(server, &service{})
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	if _, err := grpc_testing.NewTestServiceClient(dial(t, "unix:"+socket)).EmptyCall(t.Context(), &grpc_testing.Empty{}); err != nil {
		t.Fatal(err)
	}
	wantLeft(t, lim, "ip:unix", 1)
}

// TestCost charges calls by their message, and skips a method. A stream has no message when its cost is determined.
func TestCost(t *testing.T) {
	lim := core.MustNewMemory("api", core.FixedWindow(core.PerDay(10)))
	each(t, func(b *testbed) {
		if b.stream {
			b.Skip("the messages of a stream come after its cost is determined")
		}
		b.behind(by(lim,
			guard.Cost(func(r keyfunc.Request) int64 {
				request, _ := r.Unwrap().(*grpclimit.Call).Message.(*grpc_testing.SimpleRequest)
				return int64(request.GetResponseSize())
			}),
			guard.Skip(func(r keyfunc.Request) bool { return r.Path() == "/grpc.testing.TestService/EmptyCall" })))
		for _, want := range []codes.Code{codes.OK, codes.OK, codes.ResourceExhausted} {
			b.call().want(want)
		}
		if _, err := b.app.EmptyCall(b.Context(), &grpc_testing.Empty{}); err != nil {
			b.Errorf("a method that is skipped: got error %v, want none", err)
		}
		wantLeft(b.T, lim, ipKey, 0)
	})
}

// TestUnknownService calls methods that clients invent and that a proxy serves: they must not count as routes, because each would have a limit of
// its own.
func TestUnknownService(t *testing.T) {
	lim := core.MustNewMemory("api", core.FixedWindow(core.PerDay(10)))
	server := grpc.NewServer(grpc.ChainStreamInterceptor(grpclimit.Stream(lim, keyfunc.Route())),
		grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error { return stream.SendMsg(&grpc_testing.Empty{}) }))
	conn := dial(t, serveOn(t, server))
	for _, method := range []string{"/a/b", "/c/d"} {
		if err := conn.Invoke(t.Context(), method, &grpc_testing.Empty{}, &grpc_testing.Empty{}); err != nil {
			t.Fatal(err)
		}
	}
	wantLeft(t, lim, peerKey, 8)
	wantLeft(t, lim, keyfunc.ForRoute("/a/b"), 10)
}
