package httpsuite_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/gofiber/fiber/v2"
	"github.com/labstack/echo/v4"

	"github.com/redislimit/redislimit/core"
	echolimit "github.com/redislimit/redislimit/echo"
	fiberlimit "github.com/redislimit/redislimit/fiber"
	ginlimit "github.com/redislimit/redislimit/gin"
	"github.com/redislimit/redislimit/internal/suite/httpsuite"
	"github.com/redislimit/redislimit/keyfunc"
	httplimit "github.com/redislimit/redislimit/nethttp"
)

// TestKeyOfAnotherAdapter mounts the Key of each adapter under the middleware of each
// other one: it panics with a message that names both, before the user's function
// would get a nil request.
func TestKeyOfAnotherAdapter(t *testing.T) {
	called := ""
	keys := map[string]keyfunc.Func{
		"httplimit":  httplimit.Key(func(*http.Request) (string, error) { called = "httplimit"; return "k", nil }),
		"ginlimit":   ginlimit.Key(func(*gin.Context) (string, error) { called = "ginlimit"; return "k", nil }),
		"echolimit":  echolimit.Key(func(echo.Context) (string, error) { called = "echolimit"; return "k", nil }),
		"fiberlimit": fiberlimit.Key(func(*fiber.Ctx) (string, error) { called = "fiberlimit"; return "k", nil }),
	}
	for name, framework := range map[string]httpsuite.Adapter{
		"httplimit": netHTTP(), "ginlimit": ginFramework(), "echolimit": echoFramework(), "fiberlimit": fiberFramework(),
	} {
		for other, key := range keys {
			t.Run(other+" under "+name, func(t *testing.T) {
				lim, err := core.NewMemory("api", core.FixedWindow(core.PerMinute(1)))
				if err != nil {
					t.Fatal(err)
				}
				message := ""
				limit := httpsuite.Limit{Limiter: lim, Key: func(r keyfunc.Request) (string, error) {
					defer func() {
						if p := recover(); p != nil {
							message = fmt.Sprint(p)
							panic(p)
						}
					}()
					return key(r)
				}}
				called = ""
				server := framework.Start(t, httpsuite.App{
					Use: []httpsuite.Mount{limit}, Routes: []httpsuite.Route{{Path: "/a"}}, Recover: true, Renders: true,
				})
				request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/a", nil)
				if err != nil {
					t.Fatal(err)
				}
				response, err := server.Transport.RoundTrip(request)
				if err != nil {
					t.Fatal(err)
				}
				_ = response.Body.Close()
				server.Close()
				switch {
				case name == other:
					if response.StatusCode != http.StatusOK || called != other || message != "" {
						t.Errorf("status %d, called %q, panic %q", response.StatusCode, called, message)
					}
				case response.StatusCode != http.StatusInternalServerError || called != "":
					t.Errorf("status %d, and the function of %q was called", response.StatusCode, called)
				case !strings.HasPrefix(message, other+": Key wants a ") || !strings.Contains(message, name) ||
					!strings.Contains(message, "use the Key of the same adapter"):
					t.Errorf("panic %q, want one that names %s and %s", message, other, name)
				}
			})
		}
	}
}
