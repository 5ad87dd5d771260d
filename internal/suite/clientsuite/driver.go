// Package clientsuite holds the key functions to one table of requests, through
// every adapter: whatever the framework, the same request has the same key.
package clientsuite

import (
	"context"
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
// with a route /a behind the middleware of lim and key, mounted on the route.
var Adapters = map[string]func(t *testing.T, lim *core.Limiter, key keyfunc.Func) Send{
	"nethttp": func(_ *testing.T, lim *core.Limiter, key keyfunc.Func) Send {
		mux := http.NewServeMux()
		mux.Handle("/a", httplimit.Middleware(lim, key)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
		return sendHTTP(mux)
	},
	"gin": func(_ *testing.T, lim *core.Limiter, key keyfunc.Func) Send {
		gin.SetMode(gin.ReleaseMode)
		r := gin.New()
		r.Any("/a", ginlimit.Middleware(lim, key), func(c *gin.Context) { c.Status(http.StatusOK) })
		return sendHTTP(r)
	},
	"echo": func(_ *testing.T, lim *core.Limiter, key keyfunc.Func) Send {
		e := echo.New()
		e.Any("/a", func(c echo.Context) error { return c.NoContent(http.StatusOK) }, echolimit.Middleware(lim, key))
		return sendHTTP(e)
	},
	"fiber": func(_ *testing.T, lim *core.Limiter, key keyfunc.Func) Send {
		f := fiber.New(fiber.Config{DisableStartupMessage: true})
		f.All("/a", fiberlimit.Middleware(lim, key), func(c *fiber.Ctx) error { return c.SendStatus(http.StatusOK) })
		return sendFiber(f)
	},
}

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

func sendHTTP(h http.Handler) Send {
	return func(r Request) int {
		req := httptest.NewRequestWithContext(context.Background(), r.method(), r.target(), nil)
		req.RemoteAddr = r.Peer
		r.addHeader(req.Header.Add)
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, req)
		return rec.Code
	}
}

func sendFiber(f *fiber.App) Send {
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
