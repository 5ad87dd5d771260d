package fiberlimit_test

import (
	"errors"
	"log"

	"github.com/gofiber/fiber/v2"
	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	fiberlimit "github.com/redislimit/redislimit/fiber"
	"github.com/redislimit/redislimit/keyfunc"
)

func ExampleMiddleware() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	lim := core.MustNew(rdb, "api", core.TokenBucket(core.PerMinute(100)))

	app := fiber.New()
	app.Use(fiberlimit.Middleware(lim, keyfunc.IP()))
	app.Get("/", func(c *fiber.Ctx) error { return c.SendString("hello") })
	log.Fatal(app.Listen("localhost:8080"))
}

// The application's error handler finds the decision in the error.
func ExampleMiddleware_errorHandler() {
	_ = fiber.Config{ErrorHandler: func(c *fiber.Ctx, err error) error {
		if denied := (*guard.DeniedError)(nil); errors.As(err, &denied) {
			return c.Status(fiber.StatusTooManyRequests).JSON(fiber.Map{"error": "slow down", "limit": denied.Result.Limit})
		}
		return fiber.DefaultErrorHandler(c, err)
	}}
}

func ExampleOnDenied() {
	_ = fiberlimit.OnDenied(func(c *fiber.Ctx) error { // pass it to a Middleware
		res, _ := fiberlimit.Result(c)
		return c.JSON(fiber.Map{"error": "slow down", "limit": res.Limit})
	})
}

func ExampleOnError() {
	_ = fiberlimit.OnError(func(c *fiber.Ctx) error { return c.SendString("try again soon") }) // pass it to a Middleware
}

func ExampleKey() {
	_ = fiberlimit.Key(func(c *fiber.Ctx) (string, error) { // pass it to a Middleware
		if c.Params("tenant") == "" {
			return "", keyfunc.ErrNoKey
		}
		return "tenant:" + c.Params("tenant"), nil
	})
}

func ExampleResult() {
	_ = func(c *fiber.Ctx) error {
		res, _ := fiberlimit.Result(c)
		return c.JSON(fiber.Map{"left": res.Remaining})
	}
}
