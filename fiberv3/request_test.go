package fiberlimit

import (
	"net"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"

	"github.com/redislimit/redislimit/keyfunc"
)

// TestIPAllocations holds that a direct peer's key costs itself and the peer's
// address as text, which fasthttp has as a net.Addr only.
func TestIPAllocations(t *testing.T) {
	app := fiber.New()
	var fast fasthttp.RequestCtx
	fast.Init(&fasthttp.Request{}, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 4711}, nil)
	c := app.AcquireCtx(&fast)
	defer app.ReleaseCtx(c)
	var r keyfunc.Request = request{c}
	key := keyfunc.IP()
	if n := testing.AllocsPerRun(100, func() { _, _ = key(r) }); n > 2 {
		t.Errorf("%v allocations, want at most 2", n)
	}
}
