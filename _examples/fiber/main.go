// Command fiber serves three rate-limited routes with Fiber. Without -redis it
// starts an embedded Redis, so that "go run ./_examples/fiber" needs nothing else.
package main

import (
	"context"
	"encoding/base64"
	"errors"
	"net"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/redislimit/redislimit/core/guard"
	fiberlimit "github.com/redislimit/redislimit/fiber"
	"github.com/redislimit/redislimit/internal/demo"
	"github.com/redislimit/redislimit/keyfunc"
)

func main() {
	demo.Main("fiber", func(app *demo.App) demo.Server { return server{routes(app)} })
}

func routes(app *demo.App) *fiber.App {
	byIP := fiberlimit.Middleware(app.Home, keyfunc.IP())
	byUser := fiberlimit.Middleware(app.User, keyfunc.User("user"))
	byKey := fiberlimit.Middleware(app.APIKey, keyfunc.APIKey("X-API-Key", keyfunc.Known(demo.Issued)))

	f := fiber.New(fiber.Config{DisableStartupMessage: true, ErrorHandler: problem})
	f.Get("/", byIP, say("hello"))
	f.Get("/user", authenticate, byUser, say("hello, user"))
	f.Get("/key", byKey, say("hello, key"))
	f.Get("/healthz", say("ok"))
	return f
}

func say(text string) fiber.Handler {
	return func(c *fiber.Ctx) error { return c.SendString(text + "\n") }
}

// authenticate puts the user into the context. It accepts any password, because it is a demo.
func authenticate(c *fiber.Ctx) error {
	encoded := strings.TrimPrefix(c.Get(fiber.HeaderAuthorization), "Basic ")
	credentials, _ := base64.StdEncoding.DecodeString(encoded)
	user, _, _ := strings.Cut(string(credentials), ":")
	if user == "" {
		c.Set(fiber.HeaderWWWAuthenticate, demo.Challenge)
		return fiber.ErrUnauthorized
	}
	c.Locals("user", user)
	return c.Next()
}

// problem renders every error, those of the limiter included, as problem details.
func problem(c *fiber.Ctx, err error) error {
	status := fiber.StatusInternalServerError
	if known := (*fiber.Error)(nil); errors.As(err, &known) {
		status = known.Code
	}
	c.Set(fiber.HeaderContentType, guard.ProblemType)
	return c.Status(status).Send(guard.Problem(status, err))
}

// A server makes a demo.Server of a Fiber app.
type server struct{ app *fiber.App }

func (s server) Serve(l net.Listener) error         { return s.app.Listener(l) }
func (s server) Shutdown(ctx context.Context) error { return s.app.ShutdownWithContext(ctx) }
