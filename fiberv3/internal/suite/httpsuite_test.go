package suite_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/compress"
	"github.com/gofiber/fiber/v3/middleware/cors"
	"github.com/gofiber/fiber/v3/middleware/recover"
	"github.com/valyala/fasthttp"

	"github.com/redislimit/redislimit/core"
	fiberlimit "github.com/redislimit/redislimit/fiberv3"
	"github.com/redislimit/redislimit/internal/suite/httpsuite"
	"github.com/redislimit/redislimit/internal/suite/httpsuite/fasthttpsuite"
	"github.com/redislimit/redislimit/keyfunc"
)

func TestHTTP(t *testing.T) { httpsuite.Exercise(t, fiberFramework()) }

func TestIPAllocations(t *testing.T) {
	app := fiber.New()
	c := app.AcquireCtx(fasthttpsuite.NewContext())
	defer app.ReleaseCtx(c)
	httpsuite.IPAllocates(t, fiberlimit.Request(c), 2)
}

func TestCookieLines(t *testing.T) { fasthttpsuite.CookieLines(t, cookies) }
func FuzzCookie(f *testing.F)      { fasthttpsuite.FuzzCookie(f, cookies) }

func cookies(tb testing.TB, ctx *fasthttp.RequestCtx) (keyfunc.Request, func(string) string) {
	tb.Helper()
	app := fiber.New()
	c := app.AcquireCtx(ctx)
	tb.Cleanup(func() { app.ReleaseCtx(c) })
	return fiberlimit.Request(c), func(name string) string { return c.Cookies(name) }
}

func TestDroppedRequest(t *testing.T) {
	fasthttpsuite.DroppedRequest(t, func(limit httpsuite.Limit) fasthttp.RequestHandler {
		app := fiber.New()
		app.Get("/", middlewareFiber(limit), func(c fiber.Ctx) error {
			c.SetContext(c.RequestCtx())
			fiberlimit.SetCost(c, 3)
			c.RequestCtx().Hijack(func(net.Conn) {})
			return nil
		})
		return app.Handler()
	})
}

func BenchmarkAdapter(b *testing.B) {
	httpsuite.Benchmark(b, func(mounts ...httpsuite.Mount) func() int {
		app := fiber.New()
		use(app, mounts)
		app.Get("/a", func(c fiber.Ctx) error { return c.SendString("served") })
		handler := app.Handler()
		ctx := fasthttpsuite.NewContext()
		ctx.Request.SetRequestURI("/a")
		return func() int {
			ctx.Response.Reset() // as the server does between requests
			ctx.ResetUserValues()
			handler(ctx)
			return ctx.Response.StatusCode()
		}
	})
}

func fiberFramework() httpsuite.Adapter {
	return httpsuite.Adapter{
		Name: "Fiber v3", Start: startFiber,
		Lacks: map[httpsuite.Ability]string{
			httpsuite.HTTP2:                            "fasthttp speaks HTTP/1 only",
			httpsuite.Gone:                             "fasthttp does not notice that a client left",
			httpsuite.ResponseWriter:                   "fasthttp has no http.ResponseWriter",
			httpsuite.Interim:                          "fasthttp sends one response",
			httpsuite.Ability(httpsuite.BeforeRouting): "Fiber routes as it goes: nothing can be mounted before",
		},
		Patterns: map[httpsuite.MountPoint]string{httpsuite.OnRoute: "/g/users/:id"}, // Use and Group have their own prefix only
	}
}

func startFiber(t *testing.T, app httpsuite.App) *httpsuite.Server {
	config := fiber.Config{WriteTimeout: app.WriteTimeout}
	if app.Renders {
		config.ErrorHandler = renderFiber
	}
	f := fiber.New(config)
	if app.Recover {
		f.Use(recover.New())
	}
	use(f, app.Use)
	for _, group := range app.Groups {
		g := f.Group(group.Prefix)
		use(g, group.Use)
		handleFiber(g, group.Routes)
	}
	handleFiber(f, app.Routes)
	return serveFiber(t, f)
}

func serveFiber(t *testing.T, f *fiber.App) *httpsuite.Server {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- f.Listener(listener, fiber.ListenConfig{DisableStartupMessage: true}) }()
	transport := &http.Transport{}
	return &httpsuite.Server{URL: "http://" + listener.Addr().String(), Transport: transport, Close: func() {
		transport.CloseIdleConnections()
		for i := 0; i < 50 && f.Server().GetOpenConnectionsCount() > 0; i++ {
			time.Sleep(time.Millisecond) // Shutdown looks every 100 ms only
		}
		if err := errors.Join(f.ShutdownWithTimeout(5*time.Second), <-served); err != nil {
			t.Errorf("fiber ends: %v", err)
		}
	}}
}

// renderFiber is an ErrorHandler.
func renderFiber(c fiber.Ctx, err error) error {
	status := http.StatusInternalServerError
	var fe *fiber.Error
	if errors.As(err, &fe) {
		status = fe.Code
	}
	status, body := httpsuite.Render(err, status)
	return c.Status(status).SendString(body)
}

func handleFiber(router fiber.Router, routes []httpsuite.Route) {
	for _, route := range routes {
		handlers := append(httpsuite.Each(route.Use, middlewareFiber), any(handlerFiber(route.Handler)))
		router.All(httpsuite.Colons(route.Path), handlers[0], handlers[1:]...)
	}
}

func use(router fiber.Router, mounts []httpsuite.Mount) {
	for _, handler := range httpsuite.Each(mounts, middlewareFiber) {
		router.Use(handler)
	}
}

// middlewareFiber returns a handler as Fiber's methods take it: of any type.
func middlewareFiber(mount httpsuite.Mount) any {
	switch m := mount.(type) {
	case httpsuite.Auth:
		return func(c fiber.Ctx) error {
			if user := c.Get(httpsuite.UserHeader); user != "" {
				c.Locals(httpsuite.UserKey, user)
				c.Locals(httpsuite.TypedUserKey, user)
			}
			return c.Next()
		}
	case httpsuite.SetHeader:
		return func(c fiber.Ctx) error {
			c.Set(m.Name, m.Value)
			return c.Next()
		}
	case httpsuite.Log:
		return func(c fiber.Ctx) error {
			if err := c.Next(); err != nil { // as Fiber's own does
				_ = c.App().ErrorHandler(c, err)
			}
			m.Saw(c.Response().StatusCode())
			return nil
		}
	case httpsuite.CORS:
		return cors.New()
	case httpsuite.Compress:
		return compress.New()
	case httpsuite.Limit:
		key := httpsuite.KeyOf(m, fiberlimit.Key, fiberlimit.Request, func(c fiber.Ctx) string { return c.Get(httpsuite.KeyHeader) })
		return fiberlimit.Middleware(m.Limiter, key, httpsuite.Options(m, handlerFiber, fiberlimit.OnDenied, fiberlimit.OnError)...)
	}
	panic(fmt.Sprintf("a mount %T", mount))
}

func handlerFiber(h httpsuite.Handler) fiber.Handler {
	return func(c fiber.Ctx) error { return h.Serve(fiberContext{c}) }
}

// A fiberContext is a request of Fiber to the suite.
type fiberContext struct{ c fiber.Ctx }

func (f fiberContext) Write(status int, body string) error {
	if status != 0 {
		f.c.Status(status)
	}
	return f.c.SendString(body)
}

func (f fiberContext) Stream(first string, more func(), second string) error {
	f.c.RequestCtx().SetBodyStreamWriter(func(w *bufio.Writer) {
		_, _ = w.WriteString(first)
		_ = w.Flush() // the client sees what arrives
		more()
		_, _ = w.WriteString(second)
	})
	return nil
}

func (f fiberContext) Upgrade(talk func(io.ReadWriter)) error {
	f.c.Set("Connection", "Upgrade")
	f.c.Set("Upgrade", "websocket")
	f.c.Status(http.StatusSwitchingProtocols).RequestCtx().Hijack(func(conn net.Conn) { talk(conn) })
	return nil
}

func (f fiberContext) Fail(status int) error { return fiber.NewError(status) }
func (f fiberContext) Upload() error {
	_, err := f.c.MultipartForm()
	return err
}
func (f fiberContext) Throw(err error) error       { return err }
func (f fiberContext) Gone() <-chan struct{}       { return f.c.RequestCtx().Done() }
func (f fiberContext) Context() context.Context    { return f.c.Context() }
func (f fiberContext) Writer() http.ResponseWriter { return nil }
func (f fiberContext) Result() (core.Result, bool) { return fiberlimit.Result(f.c) }

func (f fiberContext) SetCost(n int64)           { fiberlimit.SetCost(f.c, n) }
func (f fiberContext) CostSetter() func(n int64) { return fiberlimit.CostSetter(f.c) }
