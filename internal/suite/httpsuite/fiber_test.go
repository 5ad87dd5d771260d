package httpsuite_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"testing"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/compress"
	"github.com/gofiber/fiber/v2/middleware/cors"
	"github.com/gofiber/fiber/v2/middleware/recover"
	"github.com/valyala/fasthttp"

	"github.com/redislimit/redislimit/core"
	fiberlimit "github.com/redislimit/redislimit/fiber"
	"github.com/redislimit/redislimit/internal/suite/httpsuite"
	"github.com/redislimit/redislimit/internal/suite/httpsuite/fasthttpsuite"
	"github.com/redislimit/redislimit/keyfunc"
)

func fiberFramework() httpsuite.Adapter { return fasthttpsuite.Fiber("Fiber", startFiber) }

func startFiber(t *testing.T, app httpsuite.App) *httpsuite.Server {
	config := fiber.Config{DisableStartupMessage: true, WriteTimeout: app.WriteTimeout}
	if app.Renders {
		config.ErrorHandler = renderFiber
	}
	f := fiber.New(config)
	if app.Recover {
		f.Use(recover.New())
	}
	for _, handler := range mountFiber(app.Use) {
		f.Use(handler)
	}
	for _, group := range app.Groups {
		handleFiber(f.Group(group.Prefix, mountFiber(group.Use)...), group.Routes)
	}
	handleFiber(f, app.Routes)
	return fasthttpsuite.Serve(t, f, f.Listener)
}

// renderFiber is an ErrorHandler that renders errors by [httpsuite.Render].
func renderFiber(c *fiber.Ctx, err error) error {
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
		router.All(httpsuite.Colons(route.Path), append(mountFiber(route.Use), handlerFiber(route.Handler))...)
	}
}

func mountFiber(mounts []httpsuite.Mount) []fiber.Handler {
	return httpsuite.Each(mounts, middlewareFiber)
}

func middlewareFiber(mount httpsuite.Mount) fiber.Handler {
	switch m := mount.(type) {
	case httpsuite.CORS:
		return cors.New()
	case httpsuite.Compress:
		return compress.New()
	case httpsuite.Limit:
		key := httpsuite.KeyOf(m, fiberlimit.Key, fiberlimit.Request, func(c *fiber.Ctx) string { return c.Get(httpsuite.KeyHeader) })
		return fiberlimit.Middleware(m.Limiter, key, httpsuite.Options(m, handlerFiber, fiberlimit.OnDenied, fiberlimit.OnError)...)
	}
	return fasthttpsuite.Middleware(mount, func(c *fiber.Ctx, err error) error { return c.App().ErrorHandler(c, err) })
}

func handlerFiber(h httpsuite.Handler) fiber.Handler {
	limit := fiberlimit.NewAnswerer(httpsuite.AnswerOptions(h.Answers, handlerFiber, fiberlimit.OnDenied, fiberlimit.OnError)...)
	return func(c *fiber.Ctx) error {
		return h.Serve(fiberContext{fasthttpsuite.FiberContext{Ctx: c, Native: c.Context()}, c, limit})
	}
}

// A fiberContext is a request of Fiber in the form of the suite.
type fiberContext struct {
	fasthttpsuite.FiberContext

	c     *fiber.Ctx
	limit *fiberlimit.Answerer
}

func (f fiberContext) Context() context.Context    { return f.c.UserContext() }
func (f fiberContext) Fail(status int) error       { return fiber.NewError(status) }
func (f fiberContext) Result() (core.Result, bool) { return fiberlimit.Result(f.c) }
func (f fiberContext) SetCost(n int64)             { fiberlimit.SetCost(f.c, n) }
func (f fiberContext) Answer(decision core.Decision, err error) (answered bool, answer error) {
	return f.limit.Answer(f.c, decision, err)
}
func (f fiberContext) CostSetter() func(n int64) { return fiberlimit.CostSetter(f.c) }

func TestFiberCookieLines(t *testing.T) { fasthttpsuite.CookieLines(t, cookiesFiber) }
func FuzzFiberCookie(f *testing.F)      { fasthttpsuite.FuzzCookie(f, cookiesFiber) }

func cookiesFiber(tb testing.TB, ctx *fasthttp.RequestCtx) (keyfunc.Request, func(string) string) {
	tb.Helper()
	app := fiber.New()
	c := app.AcquireCtx(ctx)
	tb.Cleanup(func() { app.ReleaseCtx(c) })
	return fiberlimit.Request(c), func(name string) string { return c.Cookies(name) }
}

// TestFiberTakenBack sets the cost with a fiber.Ctx that Fiber has taken back, as the writer of a streamed body may do. The
// call must have no effect, as for a request without a limiter.
func TestFiberTakenBack(t *testing.T) {
	app := fiber.New()
	c := app.AcquireCtx(fasthttpsuite.NewContext())
	app.ReleaseCtx(c)
	fiberlimit.SetCost(c, 3)
	if res, ok := fiberlimit.Result(c); ok {
		t.Errorf("Result of a released Ctx returned %+v, want none", res)
	}
}

func TestFiberDroppedRequest(t *testing.T) {
	fasthttpsuite.DroppedRequest(t, func(limit httpsuite.Limit) fasthttp.RequestHandler {
		app := fiber.New()
		app.Get("/", middlewareFiber(limit), func(c *fiber.Ctx) error {
			c.SetUserContext(c.Context())
			fiberlimit.SetCost(c, 3)
			c.Context().Hijack(func(net.Conn) {})
			return nil
		})
		return app.Handler()
	})
}
