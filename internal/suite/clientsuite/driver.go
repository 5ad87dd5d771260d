// Package clientsuite holds the key functions to one table of requests, through
// every adapter: whatever the framework, the same request has the same key.
package clientsuite

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
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
	"github.com/redislimit/redislimit/keyfunc"
	httplimit "github.com/redislimit/redislimit/nethttp"
)

// A Request is what a client sends, and from where.
type Request struct {
	Peer   string   // the connection's other end; "@" is a unix socket
	Header []string // lines such as "X-Forwarded-For: 192.0.2.1"
	Method string   // GET if empty
	Target string   // "/a" if empty
}

// A Send has a request pass a middleware, and returns the status.
type Send func(r Request) int

// Adapters make an application of each framework, in its default configuration,
// with a route /a behind the middleware of lim and key, mounted on the route. Their Send
// uses no connection: see [Serve].
var Adapters = func() map[string]func(*testing.T, *core.Limiter, keyfunc.Func) Send {
	adapters := map[string]func(*testing.T, *core.Limiter, keyfunc.Func) Send{}
	for name, newApp := range apps {
		adapters[name] = func(_ *testing.T, lim *core.Limiter, key keyfunc.Func) Send { return newApp(lim, key).send() }
	}
	return adapters
}()

// An app is an application of a framework.
type app interface {
	send() Send               // has it handle requests that nobody parsed
	serve(net.Listener) error // until the listener is closed
	shutdown() error          // waits for requests in flight
}

var apps = map[string]func(*core.Limiter, keyfunc.Func) app{
	"nethttp": func(lim *core.Limiter, key keyfunc.Func) app {
		mux := http.NewServeMux()
		mux.Handle("/a", httplimit.Middleware(lim, key)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
		return newHTTPApp(mux)
	},
	"gin": func(lim *core.Limiter, key keyfunc.Func) app {
		gin.SetMode(gin.ReleaseMode)
		r := gin.New()
		r.Any("/a", ginlimit.Middleware(lim, key), func(c *gin.Context) { c.Status(http.StatusOK) })
		return newHTTPApp(r)
	},
	"echo": func(lim *core.Limiter, key keyfunc.Func) app {
		e := echo.New()
		e.Any("/a", func(c echo.Context) error { return c.NoContent(http.StatusOK) }, echolimit.Middleware(lim, key))
		return newHTTPApp(e)
	},
	"fiber": func(lim *core.Limiter, key keyfunc.Func) app { return newFiberApp(lim, key, fiber.Config{}) },
}

// configured are applications in a configuration that changes how requests are parsed.
var configured = map[string]func(*core.Limiter, keyfunc.Func) app{
	"fiber, headers as they came": func(lim *core.Limiter, key keyfunc.Func) app {
		return newFiberApp(lim, key, fiber.Config{DisableHeaderNormalizing: true})
	},
	"nethttp, body read before": func(lim *core.Limiter, key keyfunc.Func) app {
		limited := httplimit.Middleware(lim, key)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		return newHTTPApp(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			limited.ServeHTTP(w, r)
		}))
	},
	"gin, body read before": func(lim *core.Limiter, key keyfunc.Func) app {
		gin.SetMode(gin.ReleaseMode)
		r := gin.New()
		readsBody := func(c *gin.Context) { _, _ = io.Copy(io.Discard, c.Request.Body) }
		r.Any("/a", readsBody, ginlimit.Middleware(lim, key), func(c *gin.Context) { c.Status(http.StatusOK) })
		return newHTTPApp(r)
	},
	"echo, body read before": func(lim *core.Limiter, key keyfunc.Func) app {
		e := echo.New()
		e.Pre(func(next echo.HandlerFunc) echo.HandlerFunc {
			return func(c echo.Context) error {
				_, _ = io.Copy(io.Discard, c.Request().Body)
				return next(c)
			}
		})
		e.Any("/a", func(c echo.Context) error { return c.NoContent(http.StatusOK) }, echolimit.Middleware(lim, key))
		return newHTTPApp(e)
	},
	"fiber, streamed bodies": func(lim *core.Limiter, key keyfunc.Func) app {
		readsBody := func(c *fiber.Ctx) error {
			_ = c.Body()
			return c.Next()
		}
		return newFiberApp(lim, key, fiber.Config{StreamRequestBody: true}, readsBody)
	},
	"fiber, cookies used before": func(lim *core.Limiter, key keyfunc.Func) app {
		return newFiberApp(lim, key, fiber.Config{}, func(c *fiber.Ctx) error {
			_ = c.Cookies("session")
			return c.Next()
		})
	},
}

// An httpApp stands on net/http.
type httpApp struct{ http.Server }

func newHTTPApp(h http.Handler) *httpApp {
	return &httpApp{http.Server{Handler: h, ReadHeaderTimeout: answerLimit}}
}

func (a *httpApp) serve(l net.Listener) error { return a.Serve(l) }
func (a *httpApp) shutdown() error            { return a.Close() }

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

func (f fiberApp) serve(l net.Listener) error { return f.Listener(l) }
func (f fiberApp) shutdown() error            { return f.ShutdownWithTimeout(answerLimit) }

func (r Request) target() string {
	if r.Target == "" {
		return "/a"
	}
	return r.Target
}

func (r Request) method() string {
	if r.Method == "" {
		return http.MethodGet
	}
	return r.Method
}

func (r Request) addHeader(add func(name, value string)) {
	for _, line := range r.Header {
		name, value, _ := strings.Cut(line, ": ")
		add(name, value)
	}
}

func (a *httpApp) send() Send {
	return func(r Request) int {
		req := httptest.NewRequestWithContext(context.Background(), r.method(), r.target(), nil)
		req.RemoteAddr = r.Peer
		r.addHeader(req.Header.Add)
		rec := httptest.NewRecorder()
		a.Handler.ServeHTTP(rec, req)
		return rec.Code
	}
}

func (f fiberApp) send() Send {
	handler := f.Handler()
	return func(r Request) int {
		var req fasthttp.Request
		req.Header.SetMethod(r.method())
		req.SetRequestURI("http://example.com" + r.target())
		r.addHeader(req.Header.Add)
		var ctx fasthttp.RequestCtx
		ctx.Init(&req, peerAddr(r.Peer), nil)
		handler(&ctx)
		return ctx.Response.StatusCode()
	}
}

func peerAddr(peer string) net.Addr {
	addr, err := net.ResolveTCPAddr("tcp", peer)
	if err != nil {
		return &net.UnixAddr{Name: peer, Net: "unix"}
	}
	return addr
}
