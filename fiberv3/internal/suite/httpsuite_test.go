package suite_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"testing"

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
		return fasthttpsuite.Drive(app.Handler())
	})
}

func fiberFramework() httpsuite.Adapter { return fasthttpsuite.Fiber("Fiber v3", startFiber) }

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
	t.Helper()
	return fasthttpsuite.Serve(t, f, func(l net.Listener) error { return f.Listener(l, fiber.ListenConfig{DisableStartupMessage: true}) })
}

// renderFiber is an ErrorHandler that answers an error as the suite demands.
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

// middlewareFiber returns a handler of the type any, as Fiber's methods take it.
func middlewareFiber(mount httpsuite.Mount) any {
	switch m := mount.(type) {
	case httpsuite.CORS:
		return cors.New()
	case httpsuite.Compress:
		return compress.New()
	case httpsuite.Limit:
		key := httpsuite.KeyOf(m, fiberlimit.Key, fiberlimit.Request, func(c fiber.Ctx) string { return c.Get(httpsuite.KeyHeader) })
		return fiberlimit.Middleware(m.Limiter, key, httpsuite.Options(m, handlerFiber, fiberlimit.OnDenied, fiberlimit.OnError)...)
	}
	return fasthttpsuite.Middleware(mount, func(c fiber.Ctx, err error) error { return c.App().ErrorHandler(c, err) })
}

func handlerFiber(h httpsuite.Handler) fiber.Handler {
	limit := fiberlimit.NewAnswerer(httpsuite.AnswerOptions(h.Answers, handlerFiber, fiberlimit.OnDenied, fiberlimit.OnError)...)
	return func(c fiber.Ctx) error {
		return h.Serve(fiberContext{fasthttpsuite.FiberContext{Ctx: c, Native: c.RequestCtx()}, c, limit})
	}
}

// A fiberContext presents a request of Fiber to the suite.
type fiberContext struct {
	fasthttpsuite.FiberContext

	c     fiber.Ctx
	limit *fiberlimit.Answerer
}

func (f fiberContext) Context() context.Context    { return f.c.Context() }
func (f fiberContext) Fail(status int) error       { return fiber.NewError(status) }
func (f fiberContext) Result() (core.Result, bool) { return fiberlimit.Result(f.c) }
func (f fiberContext) SetCost(n int64)             { fiberlimit.SetCost(f.c, n) }
func (f fiberContext) Answer(decision core.Decision, err error) (answered bool, answer error) {
	return f.limit.Answer(f.c, decision, err)
}
func (f fiberContext) CostSetter() func(n int64) { return fiberlimit.CostSetter(f.c) }
