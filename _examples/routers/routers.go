// Package routers shows the net/http middleware with routers and frameworks that are
// built on net/http: chi, gorilla/mux, huma, Connect and gRPC-Gateway. It is a Go module of its own;
// "go test -C _examples/routers ./..." runs its tests.
package routers

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"connectrpc.com/connect"
	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/go-chi/chi/v5"
	"github.com/gorilla/mux"
	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/keyfunc"
	httplimit "github.com/redislimit/redislimit/nethttp"
)

// Chi limits all routes by address, and the routes below /users also by address and route.
func Chi(all, users *core.Limiter) http.Handler {
	r := chi.NewRouter()
	r.Use(httplimit.Middleware(all, keyfunc.IP()))
	r.Route("/users", func(r chi.Router) {
		byRoute := keyfunc.Join(keyfunc.IP(), keyfunc.Route()) // the route is not known in Use
		r.With(httplimit.Middleware(users, byRoute)).Get("/{id}", hello)
	})
	return r
}

// Mux limits requests by address and route.
func Mux(lim *core.Limiter) http.Handler {
	address := keyfunc.IP()
	byRoute := httplimit.Key(func(r *http.Request) (string, error) {
		ip, err := address(httplimit.Request(r))
		if err != nil {
			return "", err
		}
		pattern, err := mux.CurrentRoute(r).GetPathTemplate()
		return keyfunc.ForJoin(ip, keyfunc.ForRoute(pattern)), err
	})
	r := mux.NewRouter()
	r.Use(httplimit.Middleware(lim, byRoute))
	r.HandleFunc("/users/{id}", hello)
	return r
}

// Huma limits an API. The middleware is mounted around the router of the API.
func Huma(lim *core.Limiter) http.Handler {
	router := http.NewServeMux()
	api := humago.New(router, huma.DefaultConfig("Greetings", "1.0.0"))
	huma.Get(api, "/users/{id}", func(ctx context.Context, _ *struct {
		ID string `path:"id"`
	},
	) (*struct{ Body string }, error) {
		res, _ := httplimit.Result(ctx) // the decision reaches handlers
		return &struct{ Body string }{fmt.Sprint(res.Remaining, " left")}, nil
	})
	return httplimit.Middleware(lim, keyfunc.IP())(router)
}

// Connect limits a service for clients of Connect, gRPC and gRPC-Web.
func Connect(lim *core.Limiter) http.Handler {
	services := http.NewServeMux()
	services.Handle(greet, connect.NewUnaryHandler(greet, sayHello))

	answers := connect.NewErrorWriter()
	denied := func(w http.ResponseWriter, r *http.Request) {
		err := connect.NewError(connect.CodeResourceExhausted, errors.New("too many requests"))
		if !answers.IsSupported(r) { // the client does not use one of the protocols, such as a browser
			http.Error(w, err.Error(), http.StatusTooManyRequests)
			return
		}
		_ = answers.Write(w, r, err)
	}
	return httplimit.Middleware(lim, keyfunc.IP(), httplimit.OnDenied(http.HandlerFunc(denied)))(services)
}

const greet = "/greet.v1.GreetService/Greet"

func sayHello(_ context.Context, request *connect.Request[wrapperspb.StringValue]) (*connect.Response[wrapperspb.StringValue], error) {
	return connect.NewResponse(wrapperspb.String("hello " + request.Msg.GetValue())), nil
}

// Gateway limits the requests that gRPC-Gateway translates. The ServeMux of gRPC-Gateway is an http.Handler.
func Gateway(lim *core.Limiter) (http.Handler, error) {
	gateway := runtime.NewServeMux()
	// In your service, the generated RegisterGreetServiceHandler(ctx, gateway, conn) does this.
	err := gateway.HandlePath(http.MethodGet, "/users/{id}", func(w http.ResponseWriter, r *http.Request, _ map[string]string) { hello(w, r) })
	return httplimit.Middleware(lim, keyfunc.IP())(gateway), err
}

func hello(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "hello") }
