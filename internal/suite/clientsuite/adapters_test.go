package clientsuite_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/gofiber/fiber/v2"
	"github.com/labstack/echo/v4"
	"github.com/valyala/fasthttp"

	"github.com/redislimit/redislimit/core"
	echolimit "github.com/redislimit/redislimit/echo"
	fiberlimit "github.com/redislimit/redislimit/fiber"
	ginlimit "github.com/redislimit/redislimit/gin"
	"github.com/redislimit/redislimit/internal/suite/clientsuite"
	"github.com/redislimit/redislimit/keyfunc"
	httplimit "github.com/redislimit/redislimit/nethttp"
)

// TestAdapters runs the suite with the adapters of net/http, Gin and Echo.
func TestAdapters(t *testing.T) {
	gin.SetMode(gin.ReleaseMode) // otherwise gin prints every route
	clientsuite.Exercise(t, apps)
}

// TestAdaptersOnFasthttp runs the suite with the adapter of Fiber.
func TestAdaptersOnFasthttp(t *testing.T) {
	clientsuite.Exercise(t, fiberApps)
}

func TestOverwrittenPeer(t *testing.T) { clientsuite.OverwrittenPeer(t, apps) }

func FuzzLeftOfProxy(f *testing.F) {
	gin.SetMode(gin.ReleaseMode)
	clientsuite.LeftOfProxy(f, apps, fiberApps)
}

// apps are the applications of net/http and of the frameworks that use it.
var apps = clientsuite.Apps{
	Default: map[string]clientsuite.NewApp{
		"nethttp": func(lim *core.Limiter, key keyfunc.Func) clientsuite.App {
			mux := http.NewServeMux()
			mux.Handle("/a", httplimit.Middleware(lim, key)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
			return clientsuite.HTTPApp(mux)
		},
		"gin": func(lim *core.Limiter, key keyfunc.Func) clientsuite.App {
			r := gin.New()
			r.Any("/a", ginlimit.Middleware(lim, key), func(c *gin.Context) { c.Status(http.StatusOK) })
			return clientsuite.HTTPApp(r)
		},
		"echo": func(lim *core.Limiter, key keyfunc.Func) clientsuite.App {
			e := echo.New()
			e.Any("/a", func(c echo.Context) error { return c.NoContent(http.StatusOK) }, echolimit.Middleware(lim, key))
			return clientsuite.HTTPApp(e)
		},
	},
	Configured: map[string]clientsuite.NewApp{
		"nethttp, body read before": func(lim *core.Limiter, key keyfunc.Func) clientsuite.App {
			limited := httplimit.Middleware(lim, key)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			return clientsuite.HTTPApp(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				limited.ServeHTTP(w, r)
			}))
		},
		"gin, body read before": func(lim *core.Limiter, key keyfunc.Func) clientsuite.App {
			r := gin.New()
			readsBody := func(c *gin.Context) { _, _ = io.Copy(io.Discard, c.Request.Body) }
			r.Any("/a", readsBody, ginlimit.Middleware(lim, key), func(c *gin.Context) { c.Status(http.StatusOK) })
			return clientsuite.HTTPApp(r)
		},
		"echo, body read before": func(lim *core.Limiter, key keyfunc.Func) clientsuite.App {
			e := echo.New()
			e.Pre(func(next echo.HandlerFunc) echo.HandlerFunc {
				return func(c echo.Context) error {
					_, _ = io.Copy(io.Discard, c.Request().Body)
					return next(c)
				}
			})
			e.Any("/a", func(c echo.Context) error { return c.NoContent(http.StatusOK) }, echolimit.Middleware(lim, key))
			return clientsuite.HTTPApp(e)
		},
	},
	Impatient: map[string]clientsuite.NewApp{
		"nethttp": func(lim *core.Limiter, key keyfunc.Func) clientsuite.App {
			mux := http.NewServeMux()
			mux.HandleFunc("/a", func(http.ResponseWriter, *http.Request) {})
			return clientsuite.ImpatientHTTPApp(httplimit.Middleware(lim, key)(mux))
		},
		"gin": func(lim *core.Limiter, key keyfunc.Func) clientsuite.App {
			r := gin.New()
			r.Use(ginlimit.Middleware(lim, key))
			r.Any("/a", func(c *gin.Context) { c.Status(http.StatusOK) })
			return clientsuite.ImpatientHTTPApp(r)
		},
		"echo": func(lim *core.Limiter, key keyfunc.Func) clientsuite.App {
			e := echo.New()
			e.Pre(echolimit.Middleware(lim, key))
			e.Any("/a", func(c echo.Context) error { return c.NoContent(http.StatusOK) })
			return clientsuite.ImpatientHTTPApp(e)
		},
	},
}

// fiberApps are the applications of Fiber, which uses fasthttp.
var fiberApps = clientsuite.Apps{
	Lacks: refusedTrailers(),
	Default: map[string]clientsuite.NewApp{
		"fiber": func(lim *core.Limiter, key keyfunc.Func) clientsuite.App {
			return newFiberApp(lim, key, fiber.Config{})
		},
	},
	Configured: map[string]clientsuite.NewApp{
		"fiber, headers as they came": func(lim *core.Limiter, key keyfunc.Func) clientsuite.App {
			return newFiberApp(lim, key, fiber.Config{DisableHeaderNormalizing: true})
		},
		"fiber, streamed bodies": func(lim *core.Limiter, key keyfunc.Func) clientsuite.App {
			readsBody := func(c *fiber.Ctx) error {
				_ = c.Body()
				return c.Next()
			}
			return newFiberApp(lim, key, fiber.Config{StreamRequestBody: true}, readsBody)
		},
		"fiber, cookies used before": func(lim *core.Limiter, key keyfunc.Func) clientsuite.App {
			return newFiberApp(lim, key, fiber.Config{}, func(c *fiber.Ctx) error {
				_ = c.Cookies("session")
				return c.Next()
			})
		},
	},
	Impatient: map[string]clientsuite.NewApp{
		"fiber": func(lim *core.Limiter, key keyfunc.Func) clientsuite.App {
			f := fiber.New(fiber.Config{DisableStartupMessage: true, ReadTimeout: clientsuite.ReadTimeout})
			f.Use(fiberlimit.Middleware(lim, key))
			f.All("/a", func(c *fiber.Ctx) error { return c.SendStatus(http.StatusOK) })
			return fiberApp{f}
		},
	},
}

// refusedTrailers returns the trailers that fasthttp refuses. Versions of fasthttp newer than the one that Fiber requires
// refuse some.
func refusedTrailers() map[clientsuite.Ability]string {
	lacks := map[clientsuite.Ability]string{}
	for _, name := range []string{"cookie", "x-forwarded-for", "x-real-ip"} {
		raw := "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + name + ": a\r\n\r\n"
		if err := new(fasthttp.Request).Read(bufio.NewReader(strings.NewReader(raw))); err != nil {
			lacks[clientsuite.Trailer(name)] = err.Error()
		}
	}
	return lacks
}

type fiberApp struct{ *fiber.App }

func newFiberApp(lim *core.Limiter, key keyfunc.Func, config fiber.Config, before ...fiber.Handler) fiberApp {
	config.DisableStartupMessage = true
	f := fiber.New(config)
	for _, handler := range before {
		f.Use(handler)
	}
	f.All("/a", fiberlimit.Middleware(lim, key), func(c *fiber.Ctx) error { return c.SendStatus(http.StatusOK) })
	return fiberApp{f}
}

func (f fiberApp) Serve(l net.Listener) error { return f.Listener(l) }
func (f fiberApp) Shutdown() error            { return f.ShutdownWithTimeout(clientsuite.AnswerLimit) }

func (f fiberApp) Send() clientsuite.Send {
	handler := f.Handler()
	return func(r clientsuite.Request) int {
		var req fasthttp.Request
		req.Header.SetMethod(r.Method)
		req.SetRequestURI("http://example.com" + r.Target)
		r.AddHeader(req.Header.Add)
		var ctx fasthttp.RequestCtx
		ctx.Init(&req, r.PeerAddr(), nil)
		handler(&ctx)
		return ctx.Response.StatusCode()
	}
}
