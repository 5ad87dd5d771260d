package fiberlimit_test

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"

	"github.com/redislimit/redislimit/core"
	fiberlimit "github.com/redislimit/redislimit/fiberv3"
	"github.com/redislimit/redislimit/keyfunc"
)

// serve passes a request to app, without a connection.
func serve(app *fiber.App) {
	var request fasthttp.Request
	request.SetRequestURI("/")
	var ctx fasthttp.RequestCtx
	ctx.Init(&request, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1234}, nil)
	app.Handler()(&ctx)
}

// TestGivenBack checks that a request has its original context again after the middleware has returned. By then, the context of the
// handler, which belonged to the slots, must have ended.
func TestGivenBack(t *testing.T) {
	t.Parallel()
	lim := core.MustNewMemory("api", core.InFlight(1))
	t.Cleanup(func() { _ = lim.Close() })
	around, within := func() error { return errors.New("no middleware ran") }, func() error { return errors.New("no handler ran") }
	app := fiber.New()
	app.Use(func(c fiber.Ctx) error {
		err := c.Next()
		around = c.Context().Err
		return err
	}, fiberlimit.Middleware(lim, keyfunc.IP()))
	app.Get("/", func(c fiber.Ctx) error {
		within = c.Context().Err
		return nil
	})
	serve(app)
	if err := within(); !errors.Is(err, context.Canceled) {
		t.Errorf("the context of the handler has the error %v, want Canceled, because the slots are free", err)
	}
	if err := around(); err != nil {
		t.Errorf("the context of the outer middleware has the error %v, want none", err)
	}
}

// These are contexts of an application. Fiber's documentation embeds DefaultCtx, as ownCtx does.
type (
	ownCtx     struct{ fiber.DefaultCtx }
	pointerCtx struct{ *fiber.DefaultCtx }
	hiddenCtx  struct{ fiber.CustomCtx } // hides the error of fasthttp from the middleware
)

// TestRefused passes a request that fasthttp refuses although its headers are complete. Handlers behind the middleware may run only if
// the request was charged: otherwise a client could guess passwords free of charge.
func TestRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		context func(*fiber.App) fiber.CustomCtx
		charged int64 // how many units are charged, and how often the handler behind the middleware runs
	}{
		"default": {func(app *fiber.App) fiber.CustomCtx { return fiber.NewDefaultCtx(app) }, 0},
		"own":     {func(app *fiber.App) fiber.CustomCtx { return &ownCtx{*fiber.NewDefaultCtx(app)} }, 0},
		"pointer": {func(app *fiber.App) fiber.CustomCtx { return pointerCtx{fiber.NewDefaultCtx(app)} }, 0},
		"hidden":  {func(app *fiber.App) fiber.CustomCtx { return &hiddenCtx{fiber.NewDefaultCtx(app)} }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lim := core.MustNewMemory("api", core.FixedWindow(core.PerDay(10)))
			var before, behind int64
			app := fiber.NewWithCustomCtx(c.context)
			app.Use(func(c fiber.Ctx) error {
				before++
				return c.Next()
			}, fiberlimit.Middleware(lim, keyfunc.IP()), func(c fiber.Ctx) error {
				behind++
				return c.Next()
			})
			app.Handler() // prepares the routes
			var ctx fasthttp.RequestCtx
			ctx.Init(&fasthttp.Request{}, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1234}, nil)
			app.Server().ErrorHandler(&ctx, fasthttp.ErrBodyTooLarge)
			res, err := lim.Peek(t.Context(), "ip:192.0.2.1")
			if err != nil || before != 1 || behind != c.charged || 10-res.Remaining != c.charged {
				t.Errorf("%d handlers ran before the middleware, want 1; %d ran behind it, and %d units were charged, want %d of both, %v",
					before, behind, 10-res.Remaining, c.charged, err)
			}
			if status := ctx.Response.StatusCode(); status != fiber.StatusRequestEntityTooLarge {
				t.Errorf("got status %d, want 413", status)
			}
		})
	}
}
