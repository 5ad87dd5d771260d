package keyfunc_test

import (
	"net/http"
	"testing"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/suite/clientsuite"
	"github.com/redislimit/redislimit/keyfunc"
	httplimit "github.com/redislimit/redislimit/nethttp"
)

// TestTable has the requests of clientsuite, and their keys, which are the same with every
// framework.
func TestTable(t *testing.T) {
	t.Parallel()
	clientsuite.Table(t, clientsuite.Apps{Default: map[string]clientsuite.NewApp{
		"nethttp": func(lim *core.Limiter, key keyfunc.Func) clientsuite.App {
			return clientsuite.HTTPApp(httplimit.Middleware(lim, key)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
		},
	}})
}
