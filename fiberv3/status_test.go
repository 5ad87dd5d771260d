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

// serve has app handle a request.
func serve(app *fiber.App) {
	var request fasthttp.Request
	request.SetRequestURI("/")
	var ctx fasthttp.RequestCtx
	ctx.Init(&request, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1234}, nil)
	app.Handler()(&ctx)
}

// TestGivenBack has the context that a request came with in its place again when the
// middleware has returned: that of the slots has ended.
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
		t.Errorf("the context of the handler has the error %v, want that of the slots, which are free", err)
	}
	if err := around(); err != nil {
		t.Errorf("the context of the middleware around has the error %v", err)
	}
}
