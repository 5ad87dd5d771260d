package fiberlimit_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gofiber/fiber/v3"

	"github.com/redislimit/redislimit/core"
	fiberlimit "github.com/redislimit/redislimit/fiberv3"
	"github.com/redislimit/redislimit/keyfunc"
)

// TestRestartRouting makes a handler restart the routing, as an internal redirect does: a request that holds a slot must not take another
// one.
func TestRestartRouting(t *testing.T) {
	t.Parallel()
	lim := core.MustNewMemory("api", core.InFlight(1))
	app := fiber.New()
	app.Use(fiberlimit.Middleware(lim, keyfunc.Global()))
	app.Get("/new", func(c fiber.Ctx) error { return c.SendString("new") })
	app.Get("/old", func(c fiber.Ctx) error {
		c.Path("/new")
		return c.RestartRouting()
	})
	for range 3 {
		response, err := app.Test(httptest.NewRequest(http.MethodGet, "/old", nil))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || response.StatusCode != http.StatusOK || string(body) != "new" {
			t.Errorf("got status %d and the body %q, %v; want 200 and \"new\"", response.StatusCode, body, err)
		}
	}
}
