package suite_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/labstack/echo/v5"

	"github.com/redislimit/redislimit/core"
	echolimit "github.com/redislimit/redislimit/echov5"
	"github.com/redislimit/redislimit/internal/suite/clientsuite"
	"github.com/redislimit/redislimit/keyfunc"
)

func TestClients(t *testing.T)     { clientsuite.Exercise(t, apps) }
func FuzzLeftOfProxy(f *testing.F) { clientsuite.LeftOfProxy(f, apps) }

var apps = clientsuite.Apps{
	Default: map[string]clientsuite.NewApp{
		"echo": func(lim *core.Limiter, key keyfunc.Func) clientsuite.App {
			return clientsuite.HTTPApp(newEcho(lim, key))
		},
	},
	Configured: map[string]clientsuite.NewApp{
		"echo, body read before": func(lim *core.Limiter, key keyfunc.Func) clientsuite.App {
			e := newEcho(lim, key)
			e.Pre(func(next echo.HandlerFunc) echo.HandlerFunc {
				return func(c *echo.Context) error {
					_, _ = io.Copy(io.Discard, c.Request().Body)
					return next(c)
				}
			})
			return clientsuite.HTTPApp(e)
		},
	},
	Impatient: map[string]clientsuite.NewApp{
		"echo": func(lim *core.Limiter, key keyfunc.Func) clientsuite.App {
			e := echo.New()
			e.Pre(echolimit.Middleware(lim, key))
			e.Any("/a", func(c *echo.Context) error { return c.NoContent(http.StatusOK) })
			return clientsuite.ImpatientHTTPApp(e)
		},
	},
}

func newEcho(lim *core.Limiter, key keyfunc.Func) *echo.Echo {
	e := echo.New()
	e.Any("/a", func(c *echo.Context) error { return c.NoContent(http.StatusOK) }, echolimit.Middleware(lim, key))
	return e
}
