package suite_test

import (
	"cmp"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/interop/grpc_testing"

	"github.com/redislimit/redislimit/core"
	grpclimit "github.com/redislimit/redislimit/grpc"
	"github.com/redislimit/redislimit/internal/suite/clientsuite"
	"github.com/redislimit/redislimit/keyfunc"
)

// TestClients checks key functions as for all adapters. The suite sends HTTP requests: gRPC's own handler for net/http reads metadata and peer
// from them.
func TestClients(t *testing.T)     { clientsuite.Exercise(t, apps) }
func FuzzLeftOfProxy(f *testing.F) { clientsuite.LeftOfProxy(f, apps) }

var apps = clientsuite.Apps{Method: http.MethodPost, Lacks: map[clientsuite.Ability]string{
	clientsuite.HTTP1: "gRPC speaks HTTP/2, with one method and no query",
}, Default: map[string]clientsuite.NewApp{"grpc": func(lim *core.Limiter, key keyfunc.Func) clientsuite.App {
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(grpclimit.Unary(lim, key)))
	grpc_testing.RegisterTestServiceServer(server, &service{})
	return clientsuite.HTTPApp(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		call := httptest.NewRequestWithContext(r.Context(), http.MethodPost, "/grpc.testing.TestService/EmptyCall", strings.NewReader("\x00\x00\x00\x00\x00"))
		call.ProtoMajor, call.RemoteAddr, call.Header = 2, r.RemoteAddr, r.Header.Clone()
		call.Header.Set("Content-Type", "application/grpc")
		answer := httptest.NewRecorder()
		server.ServeHTTP(answer, call)
		status := map[string]int{"0": http.StatusOK, "8": http.StatusTooManyRequests}[answer.Header().Get("Grpc-Status")]
		w.WriteHeader(cmp.Or(status, http.StatusInternalServerError))
	}))
}}}
