package httpsuite_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/gofiber/fiber/v2"
	"github.com/labstack/echo/v4"

	echolimit "github.com/redislimit/redislimit/echo"
	fiberlimit "github.com/redislimit/redislimit/fiber"
	ginlimit "github.com/redislimit/redislimit/gin"
	"github.com/redislimit/redislimit/internal/suite/httpsuite"
	"github.com/redislimit/redislimit/internal/suite/httpsuite/fasthttpsuite"
	"github.com/redislimit/redislimit/keyfunc"
	httplimit "github.com/redislimit/redislimit/nethttp"
)

func TestKeyOfAnotherAdapter(t *testing.T) {
	keys := map[string]func(func()) keyfunc.Func{
		"httplimit": func(called func()) keyfunc.Func {
			return httplimit.Key(func(*http.Request) (string, error) { called(); return "k", nil })
		},
		"ginlimit": func(called func()) keyfunc.Func {
			return ginlimit.Key(func(*gin.Context) (string, error) { called(); return "k", nil })
		},
		"echolimit": func(called func()) keyfunc.Func {
			return echolimit.Key(func(echo.Context) (string, error) { called(); return "k", nil })
		},
		"fiberlimit": func(called func()) keyfunc.Func {
			return fiberlimit.Key(func(*fiber.Ctx) (string, error) { called(); return "k", nil })
		},
	}
	httpsuite.KeyOfAnotherAdapter(t, map[string]httpsuite.Adapter{
		"httplimit": netHTTP(), "ginlimit": ginFramework(), "echolimit": echoFramework(), "fiberlimit": fiberFramework(),
	}, keys)
}

// TestIPAllocations holds that a direct peer's key costs nothing but itself, and with
// fasthttp the peer's address as text, which that has as a net.Addr only.
func TestIPAllocations(t *testing.T) {
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	c, _ := gin.CreateTestContext(httptest.NewRecorder())
	c.Request = r
	httpsuite.IPAllocates(t, httplimit.Request(r), 1)
	httpsuite.IPAllocates(t, ginlimit.Request(c), 1)
	httpsuite.IPAllocates(t, echolimit.Request(echo.New().NewContext(r, nil)), 1)
	app := fiber.New()
	f := app.AcquireCtx(fasthttpsuite.NewContext())
	defer app.ReleaseCtx(f)
	httpsuite.IPAllocates(t, fiberlimit.Request(f), 2)
}
