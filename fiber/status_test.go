package fiberlimit_test

import (
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	fiberlimit "github.com/redislimit/redislimit/fiber"
	"github.com/redislimit/redislimit/keyfunc"
)

// TestDroppedRequest has fasthttp drop a request whose handler wants to take over the
// connection, and not end it, as it does if the client has left by then: what is held for
// it must not be held for ever.
func TestDroppedRequest(t *testing.T) {
	t.Parallel()
	lim, err := core.NewMemory("api", core.FixedWindow(core.PerDay(10)))
	if err != nil {
		t.Fatal(err)
	}
	app := fiber.New()
	app.Use(fiberlimit.Middleware(lim, keyfunc.IP(), guard.CostAfter()))
	app.Get("/", func(c *fiber.Ctx) error {
		c.SetUserContext(c.Context())
		fiberlimit.SetCost(c, 3)
		c.Context().Hijack(func(net.Conn) {})
		return nil
	})
	left := func() int64 {
		res, err := lim.Peek(t.Context(), "ip:192.0.2.1")
		if err != nil {
			t.Fatal(err)
		}
		return res.Remaining
	}
	serve(app)
	if got := left(); got != 9 {
		t.Errorf("%d left while the request is not over, want 9", got)
	}
	for deadline := time.Now().Add(10 * time.Second); left() != 7; runtime.GC() {
		if time.Now().After(deadline) {
			t.Fatalf("%d left, want 7", left())
		}
		time.Sleep(time.Millisecond)
	}
}

// serve has app handle a request, which is dropped when serve returns.
//
//go:noinline
func serve(app *fiber.App) {
	var request fasthttp.Request
	request.SetRequestURI("/")
	var ctx fasthttp.RequestCtx
	ctx.Init(&request, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1234}, nil)
	app.Handler()(&ctx)
}
