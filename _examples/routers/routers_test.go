package routers

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/limits"
	"github.com/redislimit/redislimit/keyfunc"
	"github.com/redislimit/redislimit/limittest"
	httplimit "github.com/redislimit/redislimit/nethttp"
)

// limiter returns a limiter of n requests per hour.
func limiter(t *testing.T, n int64) *core.Limiter {
	t.Helper()
	return core.MustNewMemory("example", core.FixedWindow(core.PerHour(n)))
}

func get(t *testing.T, h http.Handler, path string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return w
}

const address = "ip:192.0.2.1" // the address of httptest's requests

// TestPatterns checks that all paths of a route share the limit of the route.
func TestPatterns(t *testing.T) {
	all, users := limiter(t, 10), limiter(t, 2)
	ofMux := limiter(t, 2)
	route := keyfunc.ForJoin(address, keyfunc.ForRoute("/users/{id}"))
	for name, h := range map[string]http.Handler{"chi": Chi(all, users), "mux": Mux(ofMux)} {
		for i, want := range []int{200, 200, 429} {
			if w := get(t, h, "/users/"+strings.Repeat("x", i+1)); w.Code != want {
				t.Errorf("%s, request %d: got status %d, want %d", name, i, w.Code, want)
			}
		}
	}
	if n := limits.Left(t, all, address)[0]; n != 7 {
		t.Errorf("%d units of the address are left, want 7", n)
	}
	if n, m := limits.Left(t, users, route)[0], limits.Left(t, ofMux, route)[0]; n != 0 || m != 0 {
		t.Errorf("%d and %d units of the routes are left, want none", n, m)
	}
}

// TestRealIP uses chi's RealIP, which replaces the peer's address by the address that a client sends: a warning must be logged, once.
func TestRealIP(t *testing.T) {
	var logs bytes.Buffer
	lim, err := core.NewMemory("api", core.FixedWindow(core.PerHour(3)), core.Logger(slog.New(slog.NewTextHandler(&logs, nil))))
	if err != nil {
		t.Fatal(err)
	}
	r := chi.NewRouter()
	r.Use(middleware.RealIP) //nolint:staticcheck // it is deprecated for the mistake that is tested here
	r.Use(httplimit.Middleware(lim, keyfunc.IP()))
	r.Get("/", func(http.ResponseWriter, *http.Request) {})
	for i := range 9 {
		request := httptest.NewRequest(http.MethodGet, "/", nil)
		request.Header.Set("X-Forwarded-For", fmt.Sprint("198.51.100.", i))
		r.ServeHTTP(httptest.NewRecorder(), request)
	}
	if n := strings.Count(logs.String(), "RemoteAddr, is not an address with a port"); n != 1 {
		t.Errorf("%d warnings are logged, want 1: %s", n, logs.String())
	}
}

// TestHuma checks that the decision reaches the handler, and that a request over the limit is denied.
func TestHuma(t *testing.T) {
	h := Huma(limiter(t, 2))
	if w := get(t, h, "/users/1"); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "1 left") || w.Header().Get("X-RateLimit-Remaining") != "1" {
		t.Errorf("the first request: got status %d, the headers %v and the body %s, want 200 with 1 left", w.Code, w.Header(), w.Body)
	}
	get(t, h, "/users/2")
	if w := get(t, h, "/users/3"); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "3600" {
		t.Errorf("the third request: got status %d, the headers %v and the body %s, want 429 with Retry-After 3600", w.Code, w.Header(), w.Body)
	}
}

// TestGateway checks that the second of two requests is denied.
func TestGateway(t *testing.T) {
	h, err := Gateway(limiter(t, 1))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{200, 429} {
		if w := get(t, h, "/users/1"); w.Code != want {
			t.Errorf("request %d: got status %d, want %d", i, w.Code, want)
		}
	}
}

// TestConnect makes calls in each of the three protocols, and checks what clients get when they are denied and in an outage.
func TestConnect(t *testing.T) {
	for protocol, option := range map[string]connect.ClientOption{
		"connect": connect.WithHTTPGet(), "connect, JSON": connect.WithProtoJSON(), "gRPC": connect.WithGRPC(), "gRPC-Web": connect.WithGRPCWeb(),
	} {
		t.Run(protocol, func(t *testing.T) {
			if reply, err := call(t, Connect(limittest.Allow()), option); err != nil || reply.Msg.GetValue() != "hello world" {
				t.Fatalf("got %v, %v; want \"hello world\"", reply, err)
			}
			_, err := call(t, Connect(limittest.Deny(30e9)), option)
			var denied *connect.Error
			if !errors.As(err, &denied) || denied.Code() != connect.CodeResourceExhausted || denied.Meta().Get("Retry-After") != "30" {
				t.Errorf("a denied call: got error %v with %v, want RESOURCE_EXHAUSTED with Retry-After 30", err, denied.Meta())
			}
			// Without OnDenied, and in an outage, clients get a plain HTTP status.
			for name, lim := range map[string]*core.Limiter{"denied": limittest.Deny(30e9), "outage": limittest.Unavailable()} {
				plain := httplimit.Middleware(lim, keyfunc.IP())(http.NotFoundHandler())
				if _, err := call(t, plain, option); connect.CodeOf(err) != connect.CodeUnavailable {
					t.Errorf("%s, without OnDenied: got error %v, want UNAVAILABLE", name, err)
				}
			}
		})
	}
	if w := get(t, Connect(limittest.Deny(30e9)), "/"); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "30" {
		t.Errorf("a browser: got status %d and the headers %v, want 429 with Retry-After 30", w.Code, w.Header())
	}
}

// call calls the service by one of the protocols.
func call(t *testing.T, h http.Handler, option connect.ClientOption) (*connect.Response[wrapperspb.StringValue], error) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	client := connect.NewClient[wrapperspb.StringValue, wrapperspb.StringValue](s.Client(), s.URL+greet, option)
	return client.CallUnary(t.Context(), connect.NewRequest(wrapperspb.String("world")))
}
