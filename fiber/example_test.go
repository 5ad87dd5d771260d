package fiberlimit_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http/httptest"

	"github.com/gofiber/fiber/v2"
	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	fiberlimit "github.com/redislimit/redislimit/fiber"
	"github.com/redislimit/redislimit/keyfunc"
)

func ExampleMiddleware() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
	lim := core.MustNew(rdb, "api", core.TokenBucket(core.PerMinute(100)))

	app := fiber.New()
	app.Use(fiberlimit.Middleware(lim, keyfunc.IP()))
	app.Get("/", func(c *fiber.Ctx) error { return c.SendString("hello") })
	log.Fatal(app.Listen("localhost:8080"))
}

// limited returns an app whose "/" admits one request per hour from each client.
func limited(config fiber.Config, handler fiber.Handler, key keyfunc.Func, options ...guard.Option) *fiber.App {
	lim, _ := core.NewMemory("api", core.FixedWindow(core.PerHour(1)))
	app := fiber.New(config)
	app.Get("/", fiberlimit.Middleware(lim, key, options...), handler)
	return app
}

// get requests "/" from app and prints the answer.
func get(app *fiber.App) {
	answer, err := app.Test(httptest.NewRequest(fiber.MethodGet, "/?tenant=acme", nil))
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, _ := io.ReadAll(answer.Body)
	fmt.Println(answer.StatusCode, string(body))
}

func hello(c *fiber.Ctx) error { return c.SendString("hello") }

// The application's error handler finds the decision in the error.
func ExampleMiddleware_errorHandler() {
	config := fiber.Config{ErrorHandler: func(c *fiber.Ctx, err error) error {
		if denied := (*guard.DeniedError)(nil); errors.As(err, &denied) {
			return c.Status(fiber.StatusTooManyRequests).JSON(fiber.Map{"error": "slow down", "limit": denied.Result.Limit})
		}
		return fiber.DefaultErrorHandler(c, err)
	}}
	app := limited(config, hello, keyfunc.IP())
	get(app)
	get(app)
	// Output:
	// 200 hello
	// 429 {"error":"slow down","limit":1}
}

// The application answers denied requests itself, without its error handler. The status stays 429.
func ExampleOnDenied() {
	app := limited(fiber.Config{}, hello, keyfunc.IP(), fiberlimit.OnDenied(func(c *fiber.Ctx) error {
		res, _ := fiberlimit.Result(c)
		return c.JSON(fiber.Map{"error": "slow down", "limit": res.Limit})
	}))
	get(app)
	get(app)
	// Output:
	// 200 hello
	// 429 {"error":"slow down","limit":1}
}

// A request can be counted by anything that Fiber knows about it.
func ExampleKey() {
	byTenant := fiberlimit.Key(func(c *fiber.Ctx) (string, error) {
		if c.Query("tenant") == "" {
			return "", keyfunc.ErrNoKey
		}
		return "tenant:" + c.Query("tenant"), nil
	})
	get(limited(fiber.Config{}, hello, byTenant))
	// Output: 200 hello
}

// A request that turns out to cost nothing, such as one that is answered from a cache, does not count.
func ExampleSetCost() {
	app := limited(fiber.Config{}, func(c *fiber.Ctx) error {
		fiberlimit.SetCost(c, 0)
		return c.SendString("from the cache")
	}, keyfunc.IP(), guard.CostAfter())
	get(app)
	get(app)
	// Output:
	// 200 from the cache
	// 200 from the cache
}

// A streamed body is written after the handler has returned, when c is no longer valid.
func ExampleCostSetter() {
	app := limited(fiber.Config{}, func(c *fiber.Ctx) error {
		setCost := fiberlimit.CostSetter(c)
		c.Context().SetBodyStreamWriter(func(w *bufio.Writer) {
			for i, word := range []string{"a", " long", " answer"} {
				setCost(int64(i) + 1) // the cost so far, because the client may leave at any time
				_, _ = w.WriteString(word)
				_ = w.Flush()
			}
		})
		return nil
	}, keyfunc.IP(), guard.CostAfter())
	get(app)
	// Output: 200 a long answer
}
