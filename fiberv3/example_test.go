package fiberlimit_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http/httptest"

	"github.com/gofiber/fiber/v3"
	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	fiberlimit "github.com/redislimit/redislimit/fiberv3"
	"github.com/redislimit/redislimit/keyfunc"
)

func ExampleMiddleware() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
	lim := core.MustNew(rdb, "api", core.TokenBucket(core.PerMinute(100)))

	app := fiber.New()
	app.Use(fiberlimit.Middleware(lim, keyfunc.IP()))
	app.Get("/", func(c fiber.Ctx) error { return c.SendString("hello") })
	log.Fatal(app.Listen("localhost:8080"))
}

// get requests "/" from app and prints the answer.
func get(app *fiber.App) {
	answer, err := app.Test(httptest.NewRequest(fiber.MethodGet, "/", nil))
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, _ := io.ReadAll(answer.Body)
	fmt.Println(answer.StatusCode, string(body))
}

// The application's error handler finds the decision in the error.
func ExampleMiddleware_errorHandler() {
	lim := core.MustNewMemory("api", core.FixedWindow(core.PerHour(1)))
	app := fiber.New(fiber.Config{ErrorHandler: func(c fiber.Ctx, err error) error {
		if denied := (*guard.DeniedError)(nil); errors.As(err, &denied) {
			return c.Status(fiber.StatusTooManyRequests).JSON(fiber.Map{"error": "slow down", "limit": denied.Result.Limit})
		}
		return fiber.DefaultErrorHandler(c, err)
	}})
	app.Use(fiberlimit.Middleware(lim, keyfunc.IP()))
	app.Get("/", func(c fiber.Ctx) error { return c.SendString("hello") })
	get(app)
	get(app)
	// Output:
	// 200 hello
	// 429 {"error":"slow down","limit":1}
}

// A streamed body is written after the handler has returned, when c is no longer valid.
func ExampleCostSetter() {
	lim := core.MustNewMemory("api", core.TokenBucket(core.PerHour(100)))
	app := fiber.New()
	app.Get("/", fiberlimit.Middleware(lim, keyfunc.IP(), guard.CostAfter()), func(c fiber.Ctx) error {
		setCost := fiberlimit.CostSetter(c)
		c.RequestCtx().SetBodyStreamWriter(func(w *bufio.Writer) {
			for i, word := range []string{"a", " long", " answer"} {
				setCost(int64(i) + 1) // the cost so far, because the client may leave at any time
				_, _ = w.WriteString(word)
				_ = w.Flush()
			}
		})
		return nil
	})
	get(app)
	// Output: 200 a long answer
}
